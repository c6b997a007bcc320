"""Weighted values of the selected keys against those of the others, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from interp.core.errors import OptionError

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall


def selection(
    layer: LayerCall, number: int
) -> tuple[Float[Tensor, "prompt head row"], Float[Tensor, "prompt head row"]]:
    """Return per query the distance of selected from other values, and the share that is apart.

    Selected are the keys of largest weight. The distance is that between the weighted sums of the
    selected and of the other values, in units of the largest visible norm; the share is that of
    selected weighted values nearer to their sum than every weighted value that is not selected.
    """
    if number < 1:
        raise OptionError(f"number={number} is too small; it must be at least 1")
    distances, shares = [], []
    v, size = layer.v, layer.v.norm(dim=-1)
    for _, pattern, visible in layer.blocks():
        best = pattern.topk(min(number, pattern.shape[-1]), dim=-1).indices
        chosen = torch.zeros_like(pattern, dtype=torch.bool).scatter_(-1, best, True)
        whole = pattern @ v
        of_chosen = (pattern * chosen) @ v
        longest = (size[..., None, :] * visible).amax(-1)
        apart = (whole - 2 * of_chosen).norm(dim=-1)
        distances.append(torch.where(longest > 0, apart / longest.clamp_min(1e-300), torch.nan))
        lengths = (pattern * size[..., None, :]).square()
        products = pattern * (of_chosen @ v.transpose(-1, -2))
        squared = lengths - 2 * products + of_chosen.square().sum(-1, keepdim=True)
        others = squared.masked_fill(chosen | ~visible, torch.inf).amin(-1, keepdim=True)
        margin = 1e-9 * of_chosen.square().sum(-1, keepdim=True)
        inside = (squared < others - margin) & chosen
        shares.append(inside.sum(-1).double() / number)
    return torch.cat(distances, -1).clamp(max=1.0), torch.cat(shares, -1)
