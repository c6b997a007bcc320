"""Quantised tensors: codes packed into bytes, and weights with the values that rounding leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.installed import package_error
from interp.model.rounding_names import require_rounding

BITS = (4, 8)  # widths of a packed code


@dataclass(frozen=True)
class Packed:
    """Tensor as unsigned codes with one scale and one lowest value per vector.

    Args:
        codes: the codes; two of four bits share a byte, the first in its low half.
        scale: step between codes.
        low: value of code 0.
        bits: bits per code, 4 or 8.
        size: numbers per vector.
    """

    codes: Tensor
    scale: Tensor
    low: Tensor
    bits: int
    size: int

    def restored(self) -> Tensor:
        """Return the rounded values."""
        codes = self.codes
        if self.bits == 4:
            codes = torch.stack([codes & 15, codes >> 4], -1).flatten(-2)[..., : self.size]
        return codes.to(self.scale.dtype) * self.scale + self.low

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return what is held in memory."""
        return self.codes, self.scale, self.low

    def with_tensors(self, codes: Tensor, scale: Tensor, low: Tensor) -> Packed:
        """Return the same kind of tensor with other parts."""
        return Packed(codes, scale, low, self.bits, self.size)


def pack(x: Tensor, bits: int) -> Packed:
    """Round each vector to the nearest of `2**bits` levels between its lowest and highest value."""
    assert bits in BITS
    steps, scale, low = _steps(x, bits)
    codes = steps.to(torch.uint8)
    if bits == 4:
        if codes.shape[-1] % 2:
            codes = torch.nn.functional.pad(codes, (0, 1))
        codes = codes[..., ::2] | (codes[..., 1::2] << 4)
    return Packed(codes, scale, low, bits, x.shape[-1])


def rounded_weight(weight: Float[Tensor, "out in"], method: str) -> Float[Tensor, "out in"]:
    """Return the values of a matrix after quantisation."""
    require_rounding(method)
    library, _, kind = method.rpartition(":")
    if library:
        ways = {"torchao": _by_torchao, "bitsandbytes": _by_bitsandbytes}
        try:
            return ways[library](weight.float(), kind).to(weight)
        except ImportError as error:
            install = "pip install 'interp[quantise]'"
            raise package_error(error, f"method={method!r}", library, install) from error
    x = weight.float()
    if kind == "fp8":
        most = torch.finfo(torch.float8_e4m3fn).max
        scale = (x.abs().amax(-1, keepdim=True) / most).clamp_min(torch.finfo(x.dtype).tiny)
        return ((x / scale).to(torch.float8_e4m3fn).float() * scale).to(weight)
    steps, scale, low = _steps(x, int(kind.removeprefix("int")))
    return (steps * scale + low).to(weight)


def _steps(x: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the levels of every vector as whole numbers, the step between them, and the lowest."""
    low, high = x.aminmax(dim=-1, keepdim=True)
    scale = (high - low) / (2**bits - 1)
    steps = ((x - low) / scale.masked_fill(scale == 0, 1)).round().clamp(0, 2**bits - 1)
    return steps, scale, low


def _by_torchao(x: Tensor, kind: str) -> Tensor:
    from torchao import quantization as ao  # pyright: ignore[reportMissingImports]

    linear = torch.nn.Linear(x.shape[1], x.shape[0], bias=False, device=x.device)
    linear.weight = torch.nn.Parameter(x, requires_grad=False)
    config = ao.Int8WeightOnlyConfig if kind == "int8" else ao.Float8WeightOnlyConfig
    ao.quantize_(linear, config())
    packed: Any = linear.weight
    return packed.dequantize()


def _by_bitsandbytes(x: Tensor, kind: str) -> Tensor:
    from bitsandbytes import functional as bnb  # pyright: ignore[reportMissingImports]

    if kind == "int8":
        codes, scale, _ = bnb.int8_vectorwise_quant(x.half())
        return bnb.int8_vectorwise_dequant(codes, scale)
    codes, state = bnb.quantize_4bit(x.contiguous(), quant_type=kind)
    return bnb.dequantize_4bit(codes, state)
