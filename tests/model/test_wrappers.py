"""Compiled, parallel and PEFT wrappers are taken off; packed weights are refused by name."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import zoo
from torch import nn

import interp
from interp.core.errors import LoadError

IDS = torch.tensor([[9, 33, 21, 40, 11]])


class LoraLinear(nn.Module):
    """As PEFT does: the matrix with a product of two small ones beside it."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base_layer = base
        self.lora_A = nn.Linear(base.in_features, 2, bias=False)
        self.lora_B = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + self.lora_B(self.lora_A(x))


class PeftModel(nn.Module):
    """The outside of a PEFT model: two wrappers, adapters put into the model inside."""

    def __init__(self, model: nn.Module, prompts: bool = False):
        super().__init__()
        self.base_model = nn.Module()
        self.base_model.model = model
        self.active_peft_config = SimpleNamespace(is_prompt_learning=prompts)
        self.peft_config = {"default": self.active_peft_config}

    def get_base_model(self) -> nn.Module:
        return self.base_model.model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.get_base_model()(*args, **kwargs)


def adapted() -> nn.Module:
    module = zoo.FAMILIES["llama"].build("sdpa")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for layer in module.model.layers:
            layer.self_attn.o_proj = LoraLinear(layer.self_attn.o_proj)
    return module.eval()


def test_a_peft_model_is_read_with_its_adapters():
    model = interp.load(PeftModel(adapted()), name="adapted")
    assert model.source == "transformers, inside PeftModel"
    plain, with_adapters = zoo.FAMILIES["llama"].build("sdpa"), adapted()
    with torch.no_grad():
        assert torch.equal(model.run(IDS), with_adapters(IDS).logits)
        assert not torch.equal(model.run(IDS), plain(IDS).logits)
    (about,) = interp.score(model, "entropy", null="none").provenance.values()
    assert about["source"] == model.source


def test_learned_prompts_are_refused():
    with pytest.raises(LoadError, match="PeftModel puts learned vectors before the prompt"):
        interp.load(PeftModel(zoo.FAMILIES["llama"].build("sdpa"), prompts=True))


def wrapped(kind: str) -> nn.Module:
    module = zoo.FAMILIES["llama"].build("sdpa")
    if kind == "compiled":
        return torch.compile(module, backend="eager")
    if kind == "compiled in place":
        module.compile(backend="eager")
    elif kind == "compiled layer":
        module.model.layers[0] = torch.compile(module.model.layers[0], backend="eager")
    elif kind == "parallel":
        return nn.DataParallel(module)
    elif kind == "both":
        return torch.compile(PeftModel(module), backend="eager")
    return module


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("compiled", "transformers, inside OptimizedModule"),
        ("compiled in place", "transformers"),
        ("compiled layer", "transformers"),
        ("parallel", "transformers, inside DataParallel"),
        ("both", "transformers, inside OptimizedModule and PeftModel"),
    ],
)
def test_a_wrapped_model_scores_as_the_model_inside(kind, source):
    model = interp.load(wrapped(kind), name="wrapped")
    assert model.source == source
    assert interp.check_model(model).passed
    plain = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="plain")
    scores = [
        interp.score(m, ["entropy", "induction"]).to_pandas()[["score", "null"]]
        for m in (model, plain)
    ]
    assert scores[0].equals(scores[1])
    assert torch.equal(model.run(IDS), plain.run(IDS))


@pytest.mark.parametrize(
    ("family", "path"),
    [("llama", "model.layers.0.self_attn.q_proj"), ("bert", "bert.encoder.layer.0.attention")],
)
def test_packed_weights_are_refused_naming_the_module(family, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces another package for it
        packed = torch.ao.quantization.quantize_dynamic(
            zoo.FAMILIES[family].build("sdpa"), {nn.Linear}, dtype=torch.qint8
        )
    with pytest.raises(LoadError, match=rf"{path}.* is a quantised Linear of torch .* packed"):
        interp.load(packed)
