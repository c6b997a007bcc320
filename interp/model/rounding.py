"""Round-to-nearest quantisation of tensors along their last axis, packed into bytes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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
    """Round every vector to the nearest of `2**bits` levels between its lowest and highest value.

    Args:
        x: the tensor; its last axis is quantised together.
        bits: 4 or 8.
    """
    assert bits in BITS
    low, high = x.aminmax(dim=-1, keepdim=True)
    scale = (high - low) / (2**bits - 1)
    steps = ((x - low) / scale.masked_fill(scale == 0, 1)).round().clamp(0, 2**bits - 1)
    codes = steps.to(torch.uint8)
    if bits == 4:
        if codes.shape[-1] % 2:
            codes = torch.nn.functional.pad(codes, (0, 1))
        codes = codes[..., ::2] | (codes[..., 1::2] << 4)
    return Packed(codes, scale, low, bits, x.shape[-1])
