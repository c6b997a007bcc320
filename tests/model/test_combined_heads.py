"""Attention whose heads are combined before the output projection is refused by name."""

from __future__ import annotations

import pytest
import torch
import zoo
from torch import Tensor, nn
from transformers import DiffLlamaConfig, DiffLlamaForCausalLM

import interp
from interp.core.errors import CheckError, UnreadableAttention


class Before(nn.Module):
    """Something done to the heads before they are projected."""

    def __init__(self, inner: nn.Linear, change, width: int | None = None):
        super().__init__()
        self.change = change
        self.inner = inner if width is None else nn.Linear(width, inner.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.change(x))


def changed(change, halved: bool = False) -> nn.Module:
    """A llama of the zoo with a step between attention and output projection."""
    module = zoo.FAMILIES["llama"].build("sdpa")
    for layer in module.model.layers:
        own = layer.self_attn.o_proj
        layer.self_attn.o_proj = Before(own, change, own.in_features // 2 if halved else None)
    return module


def heads_of(module: nn.Module) -> int:
    return module.config.num_attention_heads


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_differential_attention_of_an_unknown_class_is_refused_by_name(attention, monkeypatch):
    """Where no adapter is known, two calls of attention in one forward are no heads."""
    monkeypatch.setattr("interp.model.mixers.mixer.Mixer.fits", lambda self, module: False)
    config = DiffLlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    module = DiffLlamaForCausalLM._from_config(config, attn_implementation=attention).eval()
    with pytest.raises(
        UnreadableAttention,
        match=r"DiffLlamaForCausalLM: model.layers.0.self_attn calls attention 2 times in one",
    ):
        interp.load(module)


def test_heads_that_are_rolled_or_summed_before_the_projection_are_refused():
    for change in (lambda x: x.roll(8, -1), lambda x: x + 0.1 * x.roll(8, -1)):
        with pytest.raises(CheckError, match=r"model.layers.0.self_attn .* mixes its heads"):
            interp.load(changed(change))


def test_attentions_that_are_subtracted_from_each_other_are_refused():
    def differential(x: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return first - 0.5 * second

    with pytest.raises(CheckError, match="neither returns nor projects the 6 attentions"):
        interp.load(changed(differential, halved=True))


def test_gates_and_norms_without_an_offset_keep_the_heads():
    gate = torch.linspace(0.5, 2.0, heads_of(zoo.FAMILIES["llama"].model("sdpa")) * 8)

    def norm(x: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()

    for change in (lambda x: x * gate, norm):
        model = interp.load(changed(change))
        assert all(site.gated for site in model.sites)
        checked = interp.model.check_model(model)
        assert checked.passed
        assert all(s.heads_apart for s in checked.sites)


@pytest.mark.parametrize("family", ["xlnet", "qwen3_next", "albert"])
def test_what_was_read_still_is(family):
    assert interp.model.check_model(interp.load(zoo.FAMILIES[family].model("eager"))).passed
