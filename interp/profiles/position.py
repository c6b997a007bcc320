"""Features of positions: what a row model may know without reading a token."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

OFFSETS = (0, 1, 2, 3, 4, 6, 9, 14, 22, 35, 56, 90, 144, 233, 377, 610, 987, 10**9)
"""Edges of the bins of distance from query to key."""
EARLY = (1, 2, 3, 5, 9, 17)
"""Edges of the bins of the key's own position, behind the first token."""
QUERIES = (0, 8, 24, 64, 160, 10**9)
"""Edges of the bins of the query's position, each with a slope of its own over log distance."""
OFFSET_BINS = len(OFFSETS) - 1


def position_features(rows: Int[np.ndarray, " row"], n: int) -> Float[Tensor, "feature row pos"]:
    """Return the features of every pair of a sampled query and a key.

    The first ones are the bins of distance, to earlier and then to later keys: the row model of the
    rung "offset" has only these.
    """
    query = torch.as_tensor(rows)[:, None]
    key = torch.arange(n)[None]
    back = query - key
    ranges = [(back >= a) & (back < b) for a, b in _bins(OFFSETS)]
    ranges += [(-back >= a) & (-back < b) for a, b in _bins(OFFSETS[1:])]
    ranges += [(key >= a) & (key < b) & (query >= 0) for a, b in _bins(EARLY)]
    near = torch.log1p(back.abs().float())
    slopes = [near * ((query >= a) & (query < b)) for a, b in _bins(QUERIES)]
    shares = [(key * 4 >= at * query) & (key * 4 < (at + 1) * query) for at in (0, 1, 2)]
    return torch.stack([x.float().expand(len(query), n) for x in (*ranges, *slopes, *shares)])


def logits_of_position(
    parameters: Float[Tensor, "head feature"], rows: Int[np.ndarray, " row"], n: int
) -> Float[Tensor, "head row pos"]:
    """Return the logits of a model of positions for some queries and all keys."""
    features = position_features(rows, n)
    return (parameters @ features.flatten(1)).unflatten(1, features.shape[1:])


N_OFFSETS = 2 * OFFSET_BINS - 1
"""Number of the features that are bins of distance."""


def _bins(edges: tuple[int, ...]) -> list[tuple[int, int]]:
    return [*pairwise(edges)]
