"""Numbers of directions and conditions of matrices, from their singular values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

LARGEST = 7.0  # log10 of the largest condition that float32 activations can show


def rank_at(singular: Float[Tensor, "*batch rank"], share: float) -> Float[Tensor, "*batch"]:
    """Return the smallest number of directions with more than a share of the squared sum.

    NaN where all singular values are 0.
    """
    energy = singular.double().square()
    total = energy.sum(-1)
    reached = energy.cumsum(-1) > share * total[..., None]
    number = (~reached).sum(-1) + 1
    return torch.where(total > 0, number.clamp(max=energy.shape[-1]).double(), torch.nan)


def centred_rank(x: Float[Tensor, "*batch token d"], share: float) -> Float[Tensor, "*batch"]:
    """Return the rank of centred rows that explains more than a share of their variance."""
    x = x - x.mean(-2, keepdim=True)
    scale = x.abs().amax((-2, -1), keepdim=True)
    singular = torch.linalg.svdvals(x / scale.clamp_min(1e-300))
    return rank_at(singular * (scale[..., 0] > 0), share)


def log_condition(x: Float[Tensor, "*batch row column"]) -> Float[Tensor, "*batch"]:
    """Return log10 of the largest singular value over the smallest, at most `LARGEST`.

    NaN for a matrix of zeros.
    """
    singular = torch.linalg.svdvals(x.double())
    first, last = singular[..., 0], singular[..., -1]
    condition = torch.log10(first / last.clamp_min(1e-300)).clamp(max=LARGEST)
    return torch.where(first > 0, condition, torch.nan)


def last_rows(layer: Any, number: int) -> Float[Tensor, "prompt head row key"]:
    """Return the pattern of the last queries, in float64: linear in the number of keys."""
    rows = slice(max(0, layer.tokens - number), layer.tokens)
    return layer.call.pattern(rows).double() * layer.call.visible(rows)
