"""Attention kept by the three sparse patterns of MInference at one budget of keys per query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from interp.core.errors import OptionError

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall

KINDS = ("a_shape", "vertical_slash", "block_sparse")
LAST = 8  # last queries, from which columns and diagonals are chosen and which are not judged
PARTS = 4  # a quarter of the budget is the width of a block


def kind_margin(layer: LayerCall, kind: str, keys: int) -> Float[Tensor, "prompt head"]:
    """Return how much more attention a pattern keeps than the better of the other two."""
    masses = kept_masses(layer, keys)
    others = torch.stack([masses[other] for other in KINDS if other != kind])
    return masses[kind] - others.amax(0)


def kept_masses(layer: LayerCall, keys: int) -> dict[str, Float[Tensor, "prompt head"]]:
    """Return the attention that each pattern keeps, averaged over queries that see more keys.

    NaN where no query before the last ones sees more keys than the budget.
    """
    from interp.heads.geometry._blocks import vertical_slash_mass
    from interp.heads.layer import mean_of_rows

    if keys < PARTS:
        raise OptionError(f"keys={keys} is too small; give at least {PARTS}")
    last = max(1, min(LAST, layer.tokens // 4))
    at = torch.arange(layer.tokens, device=layer.call.z.device)
    counts = (layer.sees > keys) & (at < layer.tokens - last)
    rows = {
        "a_shape": _a_shape(layer, keys),
        "vertical_slash": vertical_slash_mass(layer, keys // 2, keys - keys // 2, last),
        "block_sparse": _block_sparse(layer, keys),
    }
    return {kind: mean_of_rows(x.clamp(max=1.0), counts) for kind, x in rows.items()}


def _a_shape(layer: LayerCall, keys: int) -> Float[Tensor, "prompt head row"]:
    key = torch.arange(layer.call.v.shape[2], device=layer.call.z.device)
    masses = []
    for rows, pattern, _ in layer.blocks():
        query = torch.arange(rows.start, rows.stop, device=key.device)[:, None]
        near = (query - key >= 0) & (query - key < keys - keys // 2)
        masses.append((pattern * (near | (key < keys // 2))).sum(-1))
    return torch.cat(masses, -1)


def _block_sparse(layer: LayerCall, keys: int) -> Float[Tensor, "prompt head row"]:
    """Keep the blocks of keys with the largest products of mean queries and mean keys."""
    size = keys // PARTS
    pooled_q, pooled_k = _pooled(layer.q, size), _pooled(layer.k, size)
    scores = pooled_q @ pooled_k.transpose(-1, -2)
    down, across = scores.shape[-2:]
    ahead = torch.ones(down, across, dtype=torch.bool, device=scores.device).triu(1)
    scores = scores.masked_fill(ahead, -torch.inf)
    best = scores.topk(min(PARTS, across), dim=-1).indices
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True) & ~ahead
    column = torch.arange(layer.call.v.shape[2], device=scores.device) // size
    masses = []
    for rows, pattern, _ in layer.blocks():
        row = torch.arange(rows.start, rows.stop, device=scores.device) // size
        masses.append((pattern * chosen[..., row, :][..., column]).sum(-1))
    return torch.cat(masses, -1)


def _pooled(x: Float[Tensor, "prompt head token d"], size: int) -> Tensor:
    """Return the mean of each block of tokens; the last block may be shorter."""
    return torch.stack([part.mean(2) for part in x.split(size, 2)], 2)
