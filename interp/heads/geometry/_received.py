"""Attention that keys receive, and rank correlations with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.heads.layer import LayerCall

SEEN = 0.25  # share of the queries that must see a key
LEAST = 3  # keys of a correlation
SAME = 1e-5  # of the largest: closer numbers are equal


def received_per_query(layer: LayerCall) -> Float[Tensor, "prompt head key"]:
    """Return the mean attention of the queries that see a key; NaN for keys that few see."""
    from interp_kernels.reductions import Received

    total = layer.reduce(Received()).double()
    seen = layer.seen_by.to(total)
    return torch.where(seen >= max(1.0, SEEN * layer.tokens), total / seen.clamp_min(1), torch.nan)


def main_query_direction(
    q: Float[Tensor, "prompt head token d_head"],
) -> Float[Tensor, "prompt head d_head"]:
    """Return the first right singular vector, on the side of most queries."""
    _, _, right = torch.linalg.svd(q, full_matrices=False)
    first = right[..., 0, :]
    side = (q @ first[..., None])[..., 0].sign().sum(-1)
    return first * torch.where(side < 0, -1.0, 1.0)[..., None]


def rank_correlation(
    x: Float[Tensor, "prompt head key"], y: Float[Tensor, "prompt head key"]
) -> Float[Tensor, "prompt head"]:
    """Compute Spearman's correlation over the keys where both are numbers.

    NaN for fewer than three keys, or where one of the two is constant up to rounding.
    """
    found = np.full(x.shape[:2], np.nan)
    left, right = x.cpu().numpy(), y.cpu().numpy()
    for at in np.ndindex(*found.shape):
        both = np.isfinite(left[at]) & np.isfinite(right[at])
        a, b = left[at][both], right[at][both]
        if len(a) < LEAST or _constant(a) or _constant(b):
            continue
        found[at] = np.corrcoef(_ranks(a), _ranks(b))[0, 1]
    return torch.from_numpy(found)


def _constant(x: np.ndarray) -> bool:
    return bool(np.ptp(x) <= SAME * np.abs(x).max())


def _ranks(x: np.ndarray) -> np.ndarray:
    """Return ranks; numbers that are equal up to rounding share their mean rank.

    The keys of one token at two positions, for example, can have equal norms.
    """
    order = np.argsort(x)
    apart = np.diff(x[order], prepend=x[order[0]]) > SAME * np.abs(x).max()
    group = apart.cumsum()
    mean = np.bincount(group, np.arange(len(x))) / np.bincount(group)
    ranks = np.empty(len(x))
    ranks[order] = mean[group]
    return ranks
