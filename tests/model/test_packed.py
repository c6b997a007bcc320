"""Models with packed weights are read, and are afterwards bit for bit what they were before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import interp
from interp.core.errors import CheckError

IDS = torch.tensor([[9, 33, 21, 40, 11, 52, 9, 33]])


class PackedLinear(nn.Module):
    """Integers and a scale beside them, as bitsandbytes holds 4 bits.

    Saving writes (it unpacks to other numbers), and a run in evaluation mode packs again.
    """

    def __init__(self, dense: nn.Linear, digits: float = 0.0):
        super().__init__()
        self.in_features, self.out_features, self.digits = *dense.weight.T.shape, digits
        scale = dense.weight.detach().abs().max() / 127
        numbers = (dense.weight.detach() / scale).round().to(torch.int8)
        self.weight = nn.Parameter(numbers, requires_grad=False)
        self.weight.scale = scale.reshape(1)
        self.bias = dense.bias

    def _save_to_state_dict(self, *args: Any) -> None:
        self.weight.data = self.weight.data.flip(0)
        super()._save_to_state_dict(*args)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            self.weight.data = self.weight.data.clone()  # another storage, as after packing
            self.weight.packed = True
        if self.digits:  # of the inputs, as in matrix products of 8 bits
            step = x.abs().amax(-1, keepdim=True).clamp_min(1e-9) * self.digits
            x = (x / step).round() * step
        out = x @ (self.weight.data.float() * self.weight.scale).T
        return out if self.bias is None else out + self.bias


def llama_of_64() -> nn.Module:
    """Sizes that are multiples of 32, as packages for the processor need them."""
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval()


def with_linears(make: Callable[[nn.Linear], nn.Module]) -> nn.Module:
    """A model whose matrices, but the unembedding, are packed."""
    module = llama_of_64()
    for name, part in list(module.named_modules()):
        if type(part) is nn.Linear and name != "lm_head":
            parent, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(parent), attribute, make(part))
    return module.eval()


def logits(module: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return module(IDS).logits


def scored(module: nn.Module) -> list[float]:
    """Numbers of attention and of weights, scored three times, with everything left alone."""
    before, mode = logits(module), module.training
    packed = [p for p in module.parameters() if not p.is_floating_point()]
    numbers = [p.data.clone() for p in packed]
    model = interp.load(module, name="packed")
    assert interp.model.check_model(model).passed
    hashes, sums = [model.content_hash], []
    for _ in range(3):
        for name in ("previous_token", "ov_norm"):
            table = interp.score(model, name, null="none").to_pandas()
            sums.append(float(table["score"].sum()))
        hashes.append(model.content_hash)
    assert sums[:2] == sums[2:4] == sums[4:]
    assert len(set(hashes)) == 1
    assert module.training is mode
    assert all(torch.equal(p.data, was) for p, was in zip(packed, numbers, strict=True))
    assert torch.equal(logits(module), before)
    return sums[:2]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("digits", [0.0, 1 / 127], ids=["exact inputs", "inputs of 8 bits"])
def test_scoring_changes_no_packed_weight(digits, training):
    module = with_linears(lambda dense: PackedLinear(dense, digits)).train(training)
    plain = interp.load(llama_of_64(), name="plain")
    want = [
        float(interp.score(plain, name, null="none").to_pandas()["score"].sum())
        for name in ("previous_token", "ov_norm")
    ]
    assert scored(module) == pytest.approx(want, rel=0.03)


@pytest.mark.parametrize("part", ["numbers", "scale"])
def test_the_hash_covers_numbers_and_scales(part):
    module = with_linears(PackedLinear)
    model = interp.load(module, name="packed")
    before = model.content_hash
    weight: Any = module.get_submodule("model.layers.1.self_attn.v_proj").weight
    if part == "numbers":
        weight.data[3, 2] += 1
    else:
        weight.scale *= 2
    assert model.content_hash != before


def test_a_projection_that_only_resembles_a_matrix_is_refused():
    """Rounding is measured, and no measure lets a nonlinear projection pass."""

    class Bent(PackedLinear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.tanh())

    with pytest.raises(CheckError, match="sum of head results == attention output"):
        interp.load(with_linears(Bent), name="bent")


class RoundingLinear(nn.Linear):
    """Derived from Linear, and multiplies by another matrix than its weight, as BitNet does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.weight.sign() * self.weight.abs().mean()).T


def test_the_matrix_of_a_class_derived_from_linear_is_what_it_computes():
    def ternary(dense: nn.Linear) -> nn.Module:
        made = RoundingLinear(dense.in_features, dense.out_features, bias=False)
        made.weight = dense.weight
        return made

    model = interp.load(with_linears(ternary), name="ternary")
    own: Any = model.module.get_submodule("model.layers.0.self_attn.o_proj")
    matrix = own.weight.detach().sign() * own.weight.detach().abs().mean()
    want = matrix.T.reshape(model.n_heads, model.d_head, -1)
    torch.testing.assert_close(model.weights_of(model.sites[0]).W_O, want)


def four_bits(dense: nn.Linear) -> nn.Module:
    bnb = pytest.importorskip("bitsandbytes", reason="needs the package bitsandbytes")
    made = bnb.nn.Linear4bit(
        dense.in_features,
        dense.out_features,
        bias=False,
        compute_dtype=torch.float32,
        quant_type="nf4",
        compress_statistics=True,
    )
    made.load_state_dict(dense.state_dict())
    return made.to("cpu")


def eight_bits(dense: nn.Linear) -> nn.Module:
    bnb = pytest.importorskip("bitsandbytes", reason="needs the package bitsandbytes")
    made = bnb.nn.Linear8bitLt(
        dense.in_features, dense.out_features, bias=False, has_fp16_weights=False
    )
    made.load_state_dict(dense.state_dict())
    return made.to("cpu")


def half_quadratic(dense: nn.Linear) -> nn.Module:
    hqq = pytest.importorskip("hqq.core.quantize", reason="needs the package hqq")
    config = hqq.BaseQuantizeConfig(nbits=4, group_size=16)
    return hqq.HQQLinear(dense, quant_config=config, compute_dtype=torch.float32, device="cpu")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make", [four_bits, eight_bits, half_quadratic], ids=lambda f: f.__name__)
def test_a_model_quantised_by_another_package_is_read_and_left_alone(make):
    scored(with_linears(make))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_model_quantised_by_torchao_is_read_and_left_alone():
    ao = pytest.importorskip("torchao.quantization", reason="needs the package torchao")
    module = llama_of_64()
    ao.quantize_(module, ao.Int8WeightOnlyConfig())
    scored(module)
