"""MLPs as attention heads: the construction with explicit matrices, its error, and its heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import interp
from interp import causal
from interp.core.errors import OptionError, UnreadableAttention
from interp.planted.neuron_heads import GELU_ERROR, RELU_ERROR, NeuronHeads, attention_only

PROMPTS = [[3, 7, 9, 3, 7, 1], [5, 5, 2, 8]]


def gpt2(activation: str = "silu", seed: int = 0) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=40,
            n_positions=32,
            n_embd=24,
            n_layer=2,
            n_head=4,
            n_inner=20,
            activation_function=activation,
            bos_token_id=0,
            eos_token_id=0,
        )
    ).eval()


def logits(module: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return module(torch.tensor(PROMPTS[:1])).logits


@pytest.mark.parametrize("activation", ["silu", "quick_gelu"])
def test_the_conversion_is_exact(activation) -> None:
    module = gpt2(activation).double()
    converted = attention_only(module)
    assert (logits(converted) - logits(module)).abs().max() < 1e-13
    assert [m.error for m in converted.modules() if isinstance(m, NeuronHeads)] == [0, 0]
    assert any(type(m).__name__ == "GPT2MLP" for m in module.modules())  # the original is unchanged


@pytest.mark.parametrize(("activation", "error"), [("gelu", 0.0142), ("gelu_new", 0.0142)])
def test_the_error_of_gelu_is_the_stated_one(activation, error) -> None:
    module = attention_only(gpt2(activation))
    (heads, _) = [m for m in module.modules() if isinstance(m, NeuronHeads)]
    x = torch.linspace(-30, 30, 600_001, dtype=torch.float64)
    act: Any = nn.functional.gelu
    got = (x * torch.sigmoid(heads.sharpness * x) - act(x)).abs().max()
    assert heads.error == GELU_ERROR
    assert 0.98 * error < got <= error
    for other in (heads.sharpness - 0.02, heads.sharpness + 0.02):  # the best factor
        assert (x * torch.sigmoid(other * x) - act(x)).abs().max() > got


def test_the_error_of_relu_falls_with_the_sharpness() -> None:
    x = torch.linspace(-30, 30, 600_001, dtype=torch.float64)
    for k in (10.0, 100.0):
        (heads, _) = [
            m
            for m in attention_only(gpt2("relu"), relu_sharpness=k).modules()
            if isinstance(m, NeuronHeads)
        ]
        got = float((x * torch.sigmoid(k * x) - x.relu()).abs().max())
        assert got == pytest.approx(RELU_ERROR / k, rel=1e-3)
        assert heads.error == pytest.approx(got, rel=1e-3)


def test_explicit_matrices_with_a_bias_token_give_the_same() -> None:
    """Softmax attention over an extended stream, masked to the own position and the bias token."""
    module = gpt2("silu").double()
    mlp: Any = module.transformer.h[0].mlp
    heads: Any = next(m for m in attention_only(module).modules() if isinstance(m, NeuronHeads))
    width, neurons = mlp.c_fc.weight.shape
    torch.manual_seed(1)
    x = torch.randn(5, width, dtype=torch.float64)
    stream = torch.zeros(6, width + 2, dtype=torch.float64)  # a constant, and the bias coordinate
    stream[:5, :width], stream[:5, width], stream[5, width + 1] = x, 1, 1
    mask = torch.full((5, 6), -torch.inf, dtype=torch.float64)
    mask[:, 5] = 0
    mask.fill_diagonal_(0)
    out = torch.zeros(5, width, dtype=torch.float64)
    for f in range(neurons):
        w_q = torch.zeros(width + 2, dtype=torch.float64)
        w_q[:width], w_q[width] = -mlp.c_fc.weight[:, f], -mlp.c_fc.bias[f]
        w_k = torch.zeros(width + 2, dtype=torch.float64)
        w_k[width + 1] = 1  # only the bias token has a key
        w_v = -w_q  # its value at the bias token is zero
        scores = (stream[:5] @ w_q)[:, None] * (stream @ w_k)[None] + mask
        z = scores.softmax(-1) @ (stream @ w_v)
        out = out + z[:, None] * mlp.c_proj.weight[f]
    out = out + mlp.c_proj.bias
    with torch.no_grad():
        assert (out - mlp(x)).abs().max() < 1e-13
        assert (out - heads(x[None])[0]).abs().max() < 1e-13


def test_neurons_are_heads_of_layers_of_their_own() -> None:
    module = gpt2("silu")
    model = interp.load(attention_only(module), name="converted")
    found = [(site.stack, site.layer, site.kind, site.n_heads) for site in model.sites]
    assert found == [
        ("decoder", 0, "softmax", 4),
        ("mlp", 0, "neurons", 20),
        ("decoder", 1, "softmax", 4),
        ("mlp", 1, "neurons", 20),
    ]
    cache = model.capture(PROMPTS[:1], ["map", "v", "z"], layers=0, stack="mlp")
    assert torch.allclose(cache["map", 0] @ cache["v", 0], cache["z", 0], atol=1e-6)
    off = cache["map", 0] - torch.diag_embed(cache["map", 0].diagonal(dim1=-2, dim2=-1))
    assert off.abs().max() == 0


def test_ablation_of_a_neuron_head_is_that_of_the_neuron() -> None:
    module = gpt2("silu")
    model = interp.load(attention_only(module), name="converted")
    got = model.run(PROMPTS[:1], edits=[interp.zero([(0, 7)], stack="mlp")])
    mlp: Any = module.transformer.h[0].mlp
    with torch.no_grad():
        mlp.c_proj.weight[7] = 0
    assert (got - logits(module)).abs().max() < 1e-6
    assert (got - model.run(PROMPTS[:1])).abs().max() > 1e-5


def test_ablation_of_every_neuron_head_equals_that_of_the_neuron() -> None:
    module = gpt2("silu")
    model = interp.load(attention_only(module), name="converted")
    task = causal.logit_difference(model, PROMPTS, [4, 9], [11, 2])
    frame = interp.ablate(model, task, kind="zero", stack="mlp").to_pandas()
    got = frame[frame["layer"] == 1].sort_values("head")["score"].to_numpy()

    def value() -> float:
        with torch.no_grad():
            ends = [module(torch.tensor([ids])).logits[0, -1] for ids in PROMPTS]
        return float(ends[0][4] - ends[0][11] + ends[1][9] - ends[1][2]) / 2

    mlp: Any = module.transformer.h[1].mlp
    clean, want = value(), []
    for f in range(20):
        row = mlp.c_proj.weight[f].clone()
        with torch.no_grad():
            mlp.c_proj.weight[f] = 0
            want.append(clean - value())
            mlp.c_proj.weight[f] = row
    assert got == pytest.approx(want, abs=1e-5)
    assert max(map(abs, want)) > 1e-3


def test_refusals() -> None:
    gated = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=40,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            bos_token_id=0,
            eos_token_id=0,
        )
    ).eval()
    with pytest.raises(UnreadableAttention, match="LlamaMLP"):
        attention_only(gated)
    with pytest.raises(UnreadableAttention, match="none of SiLU"):
        attention_only(gpt2("tanh"))
    with pytest.raises(OptionError, match="positive"):
        attention_only(gpt2("relu"), relu_sharpness=0)
