"""Visible blocks, columns and diagonals of attention patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall


def seen_blocks(layer: LayerCall, size: int) -> Float[Tensor, "prompt #head rows_of_blocks"]:
    """Count the blocks with a visible key in each row of blocks."""
    keys = layer.call.v.shape[2]
    across, down = -(-keys // size), -(-layer.tokens // size)
    column = torch.arange(keys, device=layer.call.z.device) // size
    counts: Tensor | None = None
    for rows, _, visible in layer.blocks():
        by_block = visible.new_zeros(*visible.shape[:-1], across, dtype=torch.double)
        by_block.index_add_(-1, column, visible.double())
        at = torch.arange(rows.start, rows.stop, device=column.device) // size
        if counts is None:
            counts = by_block.new_zeros(*visible.shape[:2], down, across)
        counts.index_add_(2, at, by_block)
    assert counts is not None, "a prompt has at least one token"
    return (counts > 0).sum(-1).double()


def vertical_slash_mass(
    layer: LayerCall, vertical: int, slash: int, last: int
) -> Float[Tensor, "prompt head row"]:
    """Return each row's attention on chosen columns and diagonals.

    They are those with the largest sums over the last queries; a diagonal is the keys at one
    distance behind the query.
    """
    keys, start = layer.call.v.shape[2], max(0, layer.tokens - last)
    rows = slice(start, layer.tokens)
    seen = layer.call.visible(rows)
    few = layer.call.pattern(rows).double() * seen
    columns = _chosen(few.sum(-2), vertical)
    behind = _behind(rows, keys, few.device)
    sums = few.new_zeros(*few.shape[:2], keys)
    sums.index_add_(-1, behind.clamp_min(0).flatten(), (few * (behind >= 0)).flatten(-2))
    diagonals = _chosen(sums, slash)
    masses = []
    for part, pattern, _ in layer.blocks():
        behind = _behind(part, keys, pattern.device)
        on = diagonals[..., behind.clamp_min(0)] & (behind >= 0)
        masses.append((pattern * (on | columns[..., None, :])).sum(-1))
    return torch.cat(masses, -1)


def _behind(rows: slice, keys: int, device: torch.device) -> Tensor:
    query = torch.arange(rows.start, rows.stop, device=device)[:, None]
    return query - torch.arange(keys, device=device)


def _chosen(sums: Tensor, number: int) -> Tensor:
    best = sums.topk(min(number, sums.shape[-1]), dim=-1).indices
    return torch.zeros_like(sums, dtype=torch.bool).scatter_(-1, best, True)
