"""Bootstraps, permutation tests and corrections for multiple tests.

The caller supplies the generator or seed of every random draw, so results are reproducible. This
module adds what neither scipy nor scikit-learn provides: Holm's correction, exact sign-flip tests
by a single matrix product, and a cluster bootstrap whose draws are shared by all compared scores.
Statistics of ranks are in `interp.core.rank_statistics`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import cache, lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from interp.core import clusters as grouped
from interp.core.errors import OptionError
from interp.core.ties import reaches

Array = np.ndarray
TAILS = (0.025, 0.975)
"""Quantiles of the draws at which a 95 % interval ends."""
DRAWS = 2000
"""Default number of bootstrap draws."""
EXACT_FLIPS = 14
"""Largest number of differences for which all sign arrangements are enumerated."""
STAKES = (0.2, 0.5, 0.8)
"""Parts of the largest bet on a mean, played side by side."""
RANDOM_FLIPS = 19_999
"""Number of random sign arrangements for more differences."""


def redraw(number: int, draws: int, rng: np.random.Generator) -> Int[Array, "draw number"]:
    """Draw units with replacement; return the index of every drawn unit, in order."""
    return rng.integers(number, size=(draws, number))


def redraw_columns(number: int, draws: int, rng: np.random.Generator) -> Int[Array, "number draw"]:
    """Draw units with replacement like `redraw`, one draw per column."""
    return rng.integers(number, size=(number, draws))


def redraw_counts(number: int, draws: int, rng: np.random.Generator) -> Int[Array, "draw number"]:
    """Draw units with replacement; return the number of times each draw contains each unit."""
    return rng.multinomial(number, np.full(number, 1 / max(number, 1)), size=draws)


def counts_of(drawn: Int[Array, "draw number"]) -> Int[Array, "draw number"]:
    """Count the times each draw of `redraw` contains each unit."""
    return np.stack([np.bincount(row, minlength=drawn.shape[1]) for row in drawn])


def tails_of(level: float) -> tuple[float, float]:
    """Return the quantiles of the draws at which the interval of this level ends."""
    return (1 - level) / 2, (1 + level) / 2


def widened_tails(level: float, n: int) -> tuple[float, float]:
    """Return the quantiles at which the interval of this level ends, for draws of n units.

    The spread of the draws is that of n units without the correction n / (n - 1), and their
    quantiles are those of a normal distribution rather than Student's t. With few units the
    interval is too narrow for both reasons; quantiles further out make up for it. n is at least 2.

    Reference: Hesterberg 2015, "What Teachers Should Know About the Bootstrap" (arXiv 1411.5279),
    "Expanded percentile confidence interval".
    """
    low, _ = widened(tails_of(level), n)
    return float(low), float(1 - low)


def widened(probabilities: Sequence[float], n: int) -> Float[Array, " probability"]:
    """Return the quantiles of draws of n units at which one-sided intervals end; as they are for 1.

    See `widened_tails`.
    """
    return np.array(_widened(tuple(probabilities), n))


@cache
def _widened(probabilities: tuple[float, ...], n: int) -> tuple[float, ...]:
    from scipy.special import ndtr, stdtrit

    if n < 2:
        return probabilities
    return tuple(ndtr(math.sqrt(n / (n - 1)) * stdtrit(n - 1, probabilities)).tolist())


def percentile_interval(
    drawn: Float[Array, "*draws"], tails: tuple[float, float] = TAILS, axis: int | None = None
) -> Float[Array, "2 *x"]:
    """Return the percentile interval of bootstrap draws, low and high."""
    return np.quantile(drawn, tails, axis=axis)


def widened_quantiles(
    drawn: Float[Array, " draw"], probabilities: Sequence[float], n: int
) -> tuple[float, ...]:
    """Return the quantiles of the finite draws of n units, at widened probabilities."""
    return tuple(np.quantile(drawn[np.isfinite(drawn)], widened(probabilities, n)).tolist())


def prediction_band(drawn: Float[Array, " draw"], level: float = 0.95) -> tuple[float, float]:
    """Return the band that one more draw of the same distribution falls into with a probability.

    Its ends are the order statistics of rank (1 ± level)(n + 1)/2 of n draws, interpolated. Sample
    quantiles would be too narrow: with 50 draws, another falls outside their middle 95 % in 9 % of
    cases. With fewer than 2/(1 - level) - 1 draws (39 for 95 %) the band is their range, into which
    another falls with probability (n - 1)/(n + 1).
    """
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], method="weibull")
    return float(low), float(high)


def bootstrap_interval(
    values: Float[Array, "score trial"],
    level: float = 0.95,
    *,
    method: Literal["percentile", "bca"] = "percentile",
    draws: int = DRAWS,
    seed: int = 0,
    clusters: Sequence[Hashable] | None = None,
) -> Float[Array, "score 2"]:
    """Compute the bootstrap interval of the mean of every score over trials, with shared draws."""
    n = values.shape[1]
    which, number = grouped.numbered(n, clusters), grouped.cluster_count(n, clusters)
    require_two(n, number)
    if not 0 < level < 1 or draws < 2:
        raise OptionError(
            f"level={level}, n_boot={draws}; level must be in (0, 1) and n_boot at least 2"
        )
    if method not in ("percentile", "bca"):
        raise OptionError(f"interval method {method!r}; known: percentile, bca")
    times = counts_of(redraw(number, draws, np.random.default_rng(seed)))
    means = values @ grouped.draw_weights(times, which).T  # [score, draw]
    tails = tails_of(level)
    if method == "percentile":
        return percentile_interval(means, tails, axis=1).T
    from scipy.special import ndtr, ndtri

    score = values.mean(1, keepdims=True)
    # bias of the draws' median from the score, and acceleration: the change of its error with it
    tied = np.abs(means - score) <= 1e-12 * np.abs(values).max(1, keepdims=True)  # by rounding
    below = (np.where(tied, 0.5, means < score)).mean(1)
    bias = ndtri(below.clip(1 / (2 * draws), 1 - 1 / (2 * draws)))[:, None]
    sums = np.zeros((number, len(values)))
    np.add.at(sums, which, values.T)
    left_out = (values.sum(1, keepdims=True) - sums.T) / (n - np.bincount(which))
    spread = left_out.mean(1, keepdims=True) - left_out
    size = (spread**2).sum(1, keepdims=True) ** 1.5
    skew = np.divide((spread**3).sum(1, keepdims=True), 6 * size, where=size > 0, out=0 * size)
    turned = bias + ndtri(np.array(tails))[None]
    share = ndtr(bias + turned / (1 - skew * turned))
    return np.stack([np.quantile(m, s) for m, s in zip(means, share, strict=True)])


def bootstrap_bounds(
    values: Float[Array, "score trial"],
    level: float = 0.95,
    clusters: Sequence[Hashable] | None = None,
) -> Float[Array, "score 2"]:
    """Return `bootstrap_interval`, NaN where there are no scores or fewer than two clusters."""
    if not len(values) or grouped.cluster_count(values.shape[1], clusters) < 2:
        return np.full((len(values), 2), np.nan)
    return bootstrap_interval(values, level, clusters=clusters)


def ratio_intervals(
    parts: Float[Array, "score trial"],
    whole: Float[Array, " trial"],
    *,
    level: float = 0.95,
    clusters: Sequence[Hashable] | None = None,
) -> Float[Array, "score 2"]:
    """Compute t intervals of ratios of two means over trials.

    The standard error is that of the mean of part - ratio * whole, as a share of the mean of the
    whole (the delta method), so trials whose parts are in proportion add nothing to it.
    """
    from scipy.special import stdtrit

    number = grouped.cluster_count(len(whole), clusters)
    require_two(len(whole), number)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = parts.mean(1) / whole.mean()
        rest = parts - ratio[:, None] * whole
        sem = grouped.cluster_summary(rest.T, clusters).sem / abs(whole.mean())
    half = float(stdtrit(number - 1, (1 + level) / 2)) * sem
    return np.stack([ratio - half, ratio + half], axis=1)


def require_two(n: int, clusters: int) -> None:
    """Raise if an interval would rest on one prompt or one cluster of prompts."""
    if n < 2:
        raise OptionError("a confidence interval over prompts needs at least two of them")
    if clusters < 2:
        raise OptionError(
            f"all {n} prompts are one cluster, so the variation between clusters is unknown; a"
            " confidence interval needs prompts of at least two clusters"
        )


class RatioBootstrap:
    """Bootstrap of ratios of sums over units, with the same draws for all compared ratios.

    Intervals are percentile intervals, widened for few units (see `widened_tails`).

    Args:
        n: number of units, such as sentences, that are drawn with replacement.
    """

    def __init__(self, n: int, *, draws: int = 5000, seed: int = 0) -> None:
        self.n = n
        drawn = redraw_counts(n, draws, np.random.default_rng(seed))
        self.weights = drawn.astype(np.float64)

    def ratios(
        self, part: Float[Array, " unit"], total: Float[Array, " unit"]
    ) -> Float[Array, " draw"]:
        """Compute the ratio of the sums in every draw; NaN where the total of a draw is 0."""
        under = self.weights @ total
        return np.divide(
            self.weights @ part, under, out=np.full(len(under), np.nan), where=under != 0
        )

    def interval(
        self, part: Float[Array, " unit"], total: Float[Array, " unit"]
    ) -> tuple[float, float]:
        """Return the 95 % interval of a ratio."""
        return finite_interval(self.ratios(part, total), self.n)

    def quantiles(
        self,
        part: Float[Array, " unit"],
        total: Float[Array, " unit"],
        probabilities: Sequence[float],
    ) -> tuple[float, ...]:
        """Return ends of one-sided intervals of the ratio, from the draws in which it is finite."""
        return widened_quantiles(self.ratios(part, total), probabilities, self.n)

    def gain(
        self,
        part: Float[Array, " unit"],
        other: Float[Array, " unit"],
        total: Float[Array, " unit"],
    ) -> tuple[tuple[float, float], float]:
        """Return the interval of the difference of two ratios, and its two-sided p value.

        The p value is at least 2 ** (1 - n), where n is the number of units that differ: this is
        the chance that all their signs agree, and bootstrap draws of few units would otherwise
        claim more.
        """
        drawn = self.ratios(part - other, total)
        drawn = drawn[np.isfinite(drawn)]
        if not len(drawn):
            return (np.nan, np.nan), 1.0
        tail = 1 + min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
        least = 2.0 ** (1 - np.count_nonzero(part - other))
        return finite_interval(drawn, self.n), float(
            min(1.0, max(least, 2 * tail / (len(drawn) + 1)))
        )


def interval_between(
    quantiles: Float[Array, "row probability"], probabilities: Sequence[float], level: float
) -> Float[Array, "row 2"]:
    """Return the interval of each row at a level, from stored quantiles of its bootstrap.

    Between the stored quantiles it is interpolated on the scale of a normal distribution; an
    interval beyond the outermost ones is that of these.
    """
    from scipy.special import ndtri

    if not 0 < level < 1:
        raise OptionError(f"level={level}: a confidence level lies between 0 and 1")
    at, known = ndtri(tails_of(level)), ndtri(probabilities)
    return np.array([np.interp(at, known, row) for row in quantiles]).reshape(-1, 2)


def finite_interval(drawn: Float[Array, " draw"], n: int = 1) -> tuple[float, float]:
    """Return the 95 % interval of the finite draws; NaN without any."""
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn):
        return np.nan, np.nan
    low, high = percentile_interval(drawn, tuple(widened(tails_of(0.95), n)))
    return float(low), float(high)


def finite_mean(values: Float[Array, "*x"], axis: int = -1) -> Float[Array, "*y"]:
    """Return the mean of the finite values along an axis; NaN where there are none."""
    known = np.isfinite(values)
    number = known.sum(axis)
    total = np.where(known, values, 0).sum(axis)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


def sign_flip_p(x: Float[Array, " unit"], *, flips: int = RANDOM_FLIPS, seed: int = 0) -> float:
    """Compute the two-sided p value of a mean of paired differences under random sign flips.

    Exact up to 14 differences, otherwise from random arrangements of signs.
    """
    return float(sign_flip_ps(np.asarray(x)[None], flips=flips, seed=seed)[0])


def sign_flip_ps(
    x: Float[Array, "row unit"], *, flips: int = RANDOM_FLIPS, seed: int = 0
) -> Float[Array, " row"]:
    """Compute `sign_flip_p` of every row, with the same signs for all and without NaN."""
    values, n = np.where(np.isnan(x), 0.0, x), x.shape[1]
    signs = _signs(n, flips, seed).astype(float)
    extra = int(n > EXACT_FLIPS)  # the observed arrangement is one more
    p_values = np.ones(len(x))
    for i, row in enumerate(values):
        if row.any():
            beyond = reaches(np.abs(signs @ row), abs(row.sum()), scale=float(np.abs(row).sum()))
            p_values[i] = (beyond.sum() + extra) / (len(signs) + extra)
    return p_values


@lru_cache(maxsize=1)
def _signs(n: int, flips: int, seed: int) -> Int[Array, "flip unit"]:
    """Return all arrangements of a few signs, or random ones of many."""
    if n <= EXACT_FLIPS:
        bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    else:
        bits = np.random.default_rng(seed).integers(0, 2, size=(flips, n))
    return 1 - 2 * bits.astype(np.int8)


def least_sign_flip_p(n: int, flips: int = RANDOM_FLIPS) -> float:
    """Return the smallest p value that `sign_flip_p` can give for n differences."""
    if n == 0:
        return 1.0
    return 2.0 / 2**n if n <= EXACT_FLIPS else 1.0 / (flips + 1)


def mean_above_p(x: Float[Array, " unit"], least: float, stakes: Sequence[float] = STAKES) -> float:
    """Compute the p value of the null that numbers between 0 and 1 have a mean of at most `least`.

    It is one over the money that bets on larger numbers make, of one at the start, and assumes only
    that the units are independent: under the null no bet gains on average. Stakes are parts of the
    largest bet, chosen before the numbers are seen; the money is shared among them.

    Reference: Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by
    betting" (arXiv 2010.09686).
    """
    bets = np.asarray(stakes)[:, None] / least
    money = np.exp(np.log1p(bets * (x - least)).sum(1)).mean()
    return float(min(1.0, 1.0 / money))


def holm(p: Float[Array, " test"], groups: Sequence[str] | None = None) -> Float[Array, " test"]:
    """Correct p values for multiple tests by Holm's step-down method (1979), in each group.

    Corrected values are at least as large as the given ones and at most 1. NaN does not count as a
    test and stays NaN. scipy does not have it, and nothing else here needs statsmodels.
    """
    out, labels = np.full(len(p), np.nan), np.zeros(len(p)) if groups is None else np.array(groups)
    for label in np.unique(labels):
        tested = np.flatnonzero((labels == label) & ~np.isnan(p))
        order = tested[np.argsort(p[tested], kind="stable")]
        scaled = np.maximum.accumulate(p[order] * (len(order) - np.arange(len(order))))
        out[order] = np.minimum(scaled, 1.0)
    return out


def benjamini_hochberg(p: Float[Array, " test"]) -> Float[Array, " test"]:
    """Adjust p values for the false discovery rate by Benjamini and Hochberg's method (1995).

    Tests with an adjusted value of at most q have an expected share of false discoveries of at most
    q. NaN does not count as a test and stays NaN; `scipy.stats.false_discovery_control` refuses it,
    and rounds otherwise in the last digit.
    """
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(-p[tested], kind="stable")]  # the largest first
    rank = np.arange(len(order), 0, -1)
    out = np.full(len(p), np.nan)
    out[order] = np.minimum(np.minimum.accumulate(p[order] * len(order) / np.maximum(rank, 1)), 1.0)
    return out
