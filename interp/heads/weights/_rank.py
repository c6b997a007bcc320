"""Effective rank of a circuit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


def effective_rank(values: Float[Tensor, "head rank"], by_entropy: bool) -> Float[Tensor, "head"]:
    """Compute the effective rank from descending singular values; 0 if all are zero."""
    if not by_entropy:
        squares = values.square()
        return squares.sum(-1) / squares[..., 0].clamp_min(1e-300)
    shares = values / values.sum(-1, keepdim=True).clamp_min(1e-300)
    rank = (-(shares.clamp_min(1e-300).log() * shares).sum(-1)).exp()
    return rank * (values[..., 0] > 0)
