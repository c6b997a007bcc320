"""Cross-fitting of pruning curves: ranked on one half of the prompts, judged on the other.

A ranking that is judged on the prompts it was made on looks better than it is, because it fits
their noise. Here the prompts are split into two halves, each half is judged by the order from the
other, and a bootstrap repeats the whole procedure, including the split and both rankings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.core.clusters import numbered
from interp.core.intervals import half_width
from interp.core.statistics import redraw_counts

Array = np.ndarray
Rank = Callable[[Float[Array, " prompt"]], list[int]]
"""Function that returns the order of removal, given the weight of each prompt."""


@dataclass(frozen=True, eq=False)
class Fold:
    """Two halves of a draw of prompts: the count of each prompt in one, and in the other."""

    first: Float[Array, " prompt"]
    second: Float[Array, " prompt"]


def folds(
    n: int, n_loops: int, seed: int, clusters: Sequence[Hashable] | None = None
) -> list[Fold]:
    """Return the split of all n prompts, then one per bootstrap draw; none for one prompt.

    A prompt that is drawn several times is in one half only. With a cluster label per prompt, whole
    clusters are split and drawn, so that the halves are independent; there is no split for one
    cluster.
    """
    which = numbered(n, clusters)
    number = int(which.max(initial=-1)) + 1
    if number < 2:
        return []
    rng = np.random.default_rng([seed, 5])
    splits = [_split(np.ones(number), rng)]
    while len(splits) <= n_loops:
        times = redraw_counts(number, 1, rng)[0].astype(float)
        if (times > 0).sum() > 1:
            splits.append(_split(times, rng))
    return [Fold(fold.first[which], fold.second[which]) for fold in splits]


def _split(times: Float[Array, " prompt"], rng: np.random.Generator) -> Fold:
    drawn = rng.permutation(np.flatnonzero(times))
    first, second = np.zeros_like(times), np.zeros_like(times)
    half = len(drawn) // 2
    first[drawn[:half]] = times[drawn[:half]]
    second[drawn[half:]] = times[drawn[half:]]
    return Fold(first, second)


def fold_orders(every: Sequence[Fold], rank: Rank) -> list[list[int]]:
    """Return two orders for each fold: from its first half, and from its second."""
    return [rank(half) for fold in every for half in (fold.first, fold.second)]


def swapped(
    fold: Fold, by_first: Float[Array, "count prompt"], by_second: Float[Array, "count prompt"]
) -> Float[Array, "count prompt"]:
    """Return the values of each prompt under the order from the other half."""
    return np.where(fold.first > 0, by_second, by_first)


def loop_areas(
    every: Sequence[Fold],
    own: Float[Array, "order count prompt"],
    random: Float[Array, "draw count prompt"],
    share: Float[Array, " count"],
    seed: int,
) -> list[float]:
    """Return, per bootstrap fold, the gap of held-out prompts to resampled random orders."""
    rng = np.random.default_rng([seed, 6])
    n_draws = len(random)
    other = np.trapezoid(random, share, axis=1)  # [draw, prompt]
    areas = []
    for k, fold in enumerate(every):
        times = fold.first + fold.second
        mine = np.trapezoid(swapped(fold, own[2 * k], own[2 * k + 1]), share, axis=0)
        draws = redraw_counts(n_draws, 1, rng)[0] / n_draws
        areas.append(float(((mine - draws @ other) * times).sum() / times.sum()))
    return areas


def loop_interval(value: float, loops: Sequence[float], n: int) -> tuple[float, float]:
    """Return the 95 % interval of a cross-fitted number of n clusters, from its bootstrap loops.

    The spread of the loops includes the variation of both the rankings and the measurements. A
    bootstrap of n numbers is too narrow by the root of (n - 1) / n, and with few prompts or loops
    the spread itself is uncertain, so the quantile is that of a t distribution.
    """
    if n < 2 or len(loops) < 2:
        return math.nan, math.nan
    spread = float(np.std(loops, ddof=1)) * math.sqrt(n / (n - 1))
    half = float(half_width([(spread, min(len(loops), n) - 1)]))
    return value - half, value + half
