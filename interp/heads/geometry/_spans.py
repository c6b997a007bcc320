"""Distances that hold a share of the attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall

LEAST = 0.01


def distances_that_hold(
    layer: LayerCall, share: float, first: int
) -> Float[Tensor, "prompt head query"]:
    """Return the smallest distance that holds a share of the attention beyond the first keys.

    NaN for queries with less than 1 % of their attention there.
    """
    values, keys = [], layer.call.v.shape[2]
    key = torch.arange(keys, device=layer.call.z.device)
    for rows, pattern, _ in layer.blocks():
        query = torch.arange(rows.start, rows.stop, device=key.device)[:, None]
        distance = (query - key).abs().expand_as(pattern)
        rest = pattern * (key >= first)
        by_distance = torch.zeros_like(rest).scatter_add_(-1, distance, rest)
        mass = rest.sum(-1, keepdim=True)
        within = (by_distance.cumsum(-1) < (share - 1e-6) * mass).sum(-1).double()
        values.append(torch.where(mass[..., 0] >= LEAST, within, torch.nan))
    return torch.cat(values, -1)
