"""Attention on a few columns and diagonals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.heads.declaration import measurement

if TYPE_CHECKING:
    import torch
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall


@measurement(unit="attention mass", low=0.0, high=1.0, requires=("self",))
def vertical_slash(layer, *, vertical: int = 2, slash: int = 2, last: int = 8):
    """Attention on the columns and diagonals that are largest for the last queries.

    The keys of largest sum (vertical) and the distances of largest sum (slash) over the last
    queries are chosen for each head; the score is the attention of all earlier queries on them,
    averaged over queries that see more keys than are chosen. 1 for a head that always attends to
    the same tokens or distances.

    Not for: bidirectional heads that attend ahead: diagonals lie behind the query. The defaults are
    for short prompts; MInference uses the last 64 queries, keeps the first 30 columns and the
    nearest 30 diagonals in any case, and many more of both.

    Options:
        vertical: number of columns.
        slash: number of diagonals.
        last: number of last queries from which they are chosen.

    Reference: Jiang et al. 2024, "MInference 1.0: Accelerating Pre-filling for Long-Context LLMs
    via Dynamic Sparse Attention" (arXiv 2407.02490).
    """
    import torch

    from interp.heads.layer import mean_of_rows

    mass = vertical_slash_mass(layer, vertical, slash, last).clamp(max=1.0)
    at = torch.arange(layer.tokens, device=mass.device)
    counts = (layer.sees > vertical + slash) & (at < layer.tokens - last)
    return mean_of_rows(mass, counts)


def vertical_slash_mass(
    layer: LayerCall, vertical: int, slash: int, last: int
) -> Float[Tensor, "prompt head row"]:
    """Return each row's attention on chosen columns and diagonals.

    They are those with the largest sums over the last queries; a diagonal is the keys at one
    distance behind the query.
    """
    import torch

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
    import torch

    query = torch.arange(rows.start, rows.stop, device=device)[:, None]
    return query - torch.arange(keys, device=device)


def _chosen(sums: Tensor, number: int) -> Tensor:
    import torch

    best = sums.topk(min(number, sums.shape[-1]), dim=-1).indices
    return torch.zeros_like(sums, dtype=torch.bool).scatter_(-1, best, True)
