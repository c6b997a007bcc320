"""Overlap of the attention rows of heads, without the first keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall

LEAST = 0.01  # attention of a row beyond the first keys


def row_overlaps(
    layer: LayerCall, other: LayerCall, drop: int
) -> Float[Tensor, "prompt head other"]:
    """Return one minus the mean total variation distance of rows, for every pair of heads.

    NaN for pairs without a query that both count.
    """
    shape = len(layer.call.z), layer.heads, other.heads
    total = torch.zeros(shape, dtype=torch.double, device=layer.call.z.device)
    number = torch.zeros_like(total)
    for rows, pattern, _ in layer.blocks():
        mine, some = _renormalised(pattern, drop)
        theirs, any_ = _renormalised(
            other.call.pattern(rows).double() * other.call.visible(rows), drop
        )
        for head in range(layer.heads):
            shared = torch.minimum(mine[:, head, None], theirs).sum(-1)
            both = some[:, head, None] & any_
            total[:, head] += (shared * both).sum(-1)
            number[:, head] += both.sum(-1)
    return torch.where(number > 0, total / number.clamp_min(1), torch.nan)


def _renormalised(pattern: Tensor, drop: int) -> tuple[Tensor, Tensor]:
    rest = pattern[..., drop:]
    mass = rest.sum(-1)
    return rest / mass[..., None].clamp_min(1e-300), mass > LEAST
