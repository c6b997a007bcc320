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
SAME = 1e-5  # relative error of sums of float32 weights: closer ones are equal


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


def rounding_of_keys(layer: LayerCall) -> float:
    """Return the relative rounding error of lengths and projections of keys, as the model has them.

    Every component is rounded to the model's dtype, and turned by rotary embedding, whose sines are
    float32 in any dtype: keys of one token at two positions differ by this much although they are
    one vector.
    """
    k = layer.call.k
    if k is None:
        return 0.0
    eps = max(torch.finfo(k.dtype).eps, torch.finfo(torch.float32).eps)
    return 8 * eps / k.shape[-1] ** 0.5


def rank_correlation(
    x: Float[Tensor, "prompt head key"], y: Float[Tensor, "prompt head key"], near: Tensor
) -> Float[Tensor, "prompt head"]:
    """Compute Spearman's correlation over the keys where both are numbers; ties share mean ranks.

    NaN for fewer than three keys, or where one of the two is constant up to rounding.
    """
    correlations = np.full(x.shape[:2], np.nan)
    sides = [z.cpu().numpy() for z in (x, near.expand_as(x), y, SAME * y)]
    for at in np.ndindex(*correlations.shape):
        a, a_near, b, b_near = (z[at] for z in sides)
        both = np.isfinite(a) & np.isfinite(b)
        if both.sum() < LEAST:
            continue
        ranks = _ranks(a[both], a_near[both]), _ranks(b[both], b_near[both])
        if all(np.ptp(r) for r in ranks):
            correlations[at] = np.corrcoef(*ranks)[0, 1]
    return torch.from_numpy(correlations)


def _ranks(x: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Return ranks; numbers as near as rounding to the least of a group share their mean rank."""
    order = np.argsort(x, kind="stable")
    ordered, end = x[order], (x + near)[order]
    ranks, first = np.empty(len(x)), 0
    while first < len(x):
        beyond = int(np.searchsorted(ordered, end[first], side="right"))
        ranks[order[first:beyond]] = (first + beyond - 1) / 2
        first = beyond
    return ranks
