"""Rank correlations, overlaps of rankings, and areas under the ROC curve with their intervals.

scipy supplies ranks, rank tests and distributions; bootstrap draws are those of
`interp.core.statistics`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement

import numpy as np
from jaxtyping import Bool, Float

from interp.core.statistics import (
    DRAWS,
    TAILS,
    Array,
    counts_of,
    percentile_interval,
    redraw,
)
from interp.core.ties import ordered, snapped

_ALL_PAIRS = 256  # items, up to which float32 counts their pairs exactly


def ranks(scores: Float[Array, "*x item"]) -> Float[Array, "*x item"]:
    """Rank along the last axis from 1 for the smallest, with mid-ranks for ties."""
    from scipy.stats import rankdata

    return rankdata(scores, axis=-1)


def spearman(scores: Float[Array, "ranking item"]) -> Float[Array, "ranking ranking"]:
    """Compute Spearman's rank correlation of every pair of rankings, with mid-ranks for ties.

    NaN where a ranking is constant. Sums of products of ranks are exact, so the correlation of a
    ranking with itself is exactly 1.
    """
    around_zero = ranks(scores) - (scores.shape[1] + 1) / 2
    return _normalised(around_zero @ around_zero.T)


def up_to_rounding(measure: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return a measure of rankings in which scores that rounding can swap are tied."""
    return lambda scores: measure(snapped(scores))


def paired_spearman(
    one: Float[Array, "*x item"], other: Float[Array, "*x item"]
) -> Float[Array, "*x"]:
    """Compute Spearman's rank correlation of pairs of rankings, along the last axis.

    NaN where one of the two is constant.
    """
    a, b = (r - r.mean(-1, keepdims=True) for r in (ranks(one), ranks(other)))
    size = np.sqrt((a**2).sum(-1) * (b**2).sum(-1))
    return np.where(size > 0, (a * b).sum(-1) / np.where(size > 0, size, 1), np.nan)


def kendall(scores: Float[Array, "ranking item"]) -> Float[Array, "ranking ranking"]:
    """Compute Kendall's tau-b of every pair of rankings; tied pairs count for neither side.

    NaN where a ranking is constant.
    """
    m, n = scores.shape
    if n <= _ALL_PAIRS:  # signs of all differences at once: one matrix product for all rankings
        sign = np.sign(scores[:, :, None] - scores[:, None]).reshape(m, -1).astype(np.float32)
        return _normalised((sign @ sign.T).astype(np.float64))
    from scipy.stats import kendalltau  # uses sorting: larger fixed cost, but grows as n log n

    taus = np.full((m, m), np.nan)
    varied = np.flatnonzero(np.ptp(scores, axis=1) > 0).tolist()
    for i, j in combinations_with_replacement(varied, 2):
        tau, _ = (1.0, 0.0) if i == j else kendalltau(scores[i], scores[j], method="asymptotic")
        taus[i, j] = taus[j, i] = tau
    return taus


def _normalised(products: Array) -> Array:
    """Divide products of pairs by the lengths of both; NaN where a length is 0."""
    squares = np.diag(products)
    scale = np.sqrt(np.outer(squares, squares))  # a ranking with itself gives exactly 1
    normalised = np.full(products.shape, np.nan)
    return np.divide(products, scale, out=normalised, where=scale > 0).clip(-1, 1)


def top_k(scores: Float[Array, " item"], k: int) -> set[int]:
    """Return the k items with the largest scores; ties keep the order of the items."""
    return set(ordered(scores)[:k])


def overlap_p(overlap: int, k: int, n: int) -> float:
    """Compute the probability that two random top-k lists of n items share at least `overlap`."""
    from scipy.stats import hypergeom

    return float(hypergeom.sf(overlap - 1, n, k, k))


def auroc(score: Float[Array, " item"], truth: Bool[Array, " item"]) -> float:
    """Compute the area under the ROC curve: the probability that a true item scores above another.

    It is the U statistic of Mann and Whitney divided by the number of pairs; ties count half. NaN
    where all items or none are true.
    """
    from scipy.stats import mannwhitneyu

    inside, outside = score[truth], score[~truth]
    if not len(inside) or not len(outside):
        return float("nan")
    with np.errstate(divide="ignore", invalid="ignore"):  # p value where all values are equal
        test = mannwhitneyu(inside, outside, method="asymptotic")
    return float(test.statistic) / (len(inside) * len(outside))


def auroc_interval(
    score: Float[Array, " item"],
    truth: Bool[Array, " item"],
    *,
    draws: int = DRAWS,
    seed: int = 0,
    tails: tuple[float, float] = TAILS,
) -> tuple[float, float]:
    """Return the percentile interval of the AUROC over redrawn true and other items."""
    inside, outside = score[truth], score[~truth]
    if not len(inside) or not len(outside):
        return float("nan"), float("nan")
    rng, times = np.random.default_rng(seed), ([], [])
    for _ in range(draws):
        for group, counts in zip((inside, outside), times, strict=True):
            counts.append(counts_of(redraw(len(group), 1, rng))[0])
    # each pair of a true and another item is weighted by the counts of both in the draw
    wins = (inside[:, None] > outside) + 0.5 * (inside[:, None] == outside)
    first, second = (np.array(counts, dtype=float) for counts in times)
    areas = ((first @ wins) * second).sum(1) / wins.size
    low, high = percentile_interval(areas, tails)
    return float(low), float(high)
