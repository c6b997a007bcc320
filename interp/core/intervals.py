"""Confidence intervals of means and of sums of means that are estimated from few values."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
from jaxtyping import Float, Int

from interp.core.clusters import cluster_count, numbered
from interp.core.errors import OptionError
from interp.core.statistics import DRAWS, redraw_counts, tail_value

Array = np.ndarray
ErrorPart = tuple[Float[Array, "*x"] | float, float]
"""Standard error and its degrees of freedom: one less than the values it was estimated from."""


def half_width(parts: Sequence[ErrorPart], level: float = 0.95) -> Float[Array, "*x"]:
    """Return half the width of the interval of a sum whose errors are independent.

    The t quantile has the degrees of freedom of Welch and Satterthwaite: (sum of s²)² divided by
    the sum of s⁴ / df. With many values it approaches the normal quantile 1.96; with four it is
    3.18, because four values estimate their spread poorly. NaN where a standard error is unknown.

    Raises:
        OptionError: the level is not between 0 and 1.
    """
    from scipy.stats import t as student

    if not 0 < level < 1:
        raise OptionError(f"level={level} is not a confidence level; give a number between 0 and 1")
    squares = [np.asarray(sem, dtype=float) ** 2 for sem, _ in parts]
    total = np.sum(np.stack(np.broadcast_arrays(*squares)), 0)
    dfs = [df if df > 0 else math.nan for _, df in parts]
    spread = [s**2 / df for s, df in zip(squares, dfs, strict=True)]
    weight = np.sum(np.stack(np.broadcast_arrays(*spread)), 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.where(weight > 0, total**2 / weight, math.inf)
    # most scores share their degrees of freedom, and a quantile takes long
    distinct, at = np.unique(df, return_inverse=True)
    quantile = student.isf((1 - level) / 2, distinct)[at.reshape(df.shape)]
    found = quantile * np.sqrt(total)
    return np.where(np.isnan(weight), math.nan, found)


def around(
    score: Float[Array, " x"], parts: Sequence[ErrorPart], level: float = 0.95
) -> Float[Array, "x 2"]:
    """Return the interval of each score, low and high."""
    half = half_width(parts, level)
    return np.stack([score - half, score + half], -1)


LEAST_CLUSTERS = 5
"""Fewest clusters of which a studentised bootstrap is drawn; fewer give a t interval."""


def studentised_interval(
    values: Float[Array, "score trial"],
    level: float = 0.95,
    *,
    clusters: Sequence[Hashable] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Float[Array, "score 2"]:
    """Compute the symmetric bootstrap-t interval of the mean of every score over trials.

    Whole clusters are drawn, the same for all scores. The mean of each draw is divided by the
    standard error of that draw, and the quantile of the absolute ratios takes the place of the t
    quantile (Hall 1988, "On symmetric bootstrap confidence intervals"): with few and skewed values
    it covers better than percentiles of the means. With fewer than `LEAST_CLUSTERS` clusters the
    interval is the t interval.

    Args:
        values: one row per score; there is no NaN.
        level: confidence level.
        clusters: a label per trial.
        draws: number of bootstrap draws.
        seed: seed of the draws.

    Returns:
        Low and high end; NaN with one trial or cluster.

    Raises:
        OptionError: the level is not between 0 and 1.
    """
    number = cluster_count(values.shape[1], clusters)
    which = numbered(values.shape[1], clusters)
    size = np.bincount(which, minlength=number).astype(float)
    mean = values.mean(1)
    gone = np.zeros((number, len(values)))
    np.add.at(gone, which, (values - mean[:, None]).T)  # sum of deviations, per cluster
    one = np.ones(1)
    sem = _linear_error(one[:, None].repeat(number, 1), gone, size)[1][0]
    if number < LEAST_CLUSTERS:
        return around(mean, [(sem if number > 1 else sem * math.nan, number - 1.0)], level)
    if not 0 < level < 1:
        raise OptionError(f"level={level} is not a confidence level; give a number between 0 and 1")
    times = redraw_counts(number, draws, np.random.default_rng(seed)).astype(float)
    shift, error = _linear_error(times, gone, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        # a draw of equal clusters has no error; its ratio is beyond every quantile
        ratio = np.where(shift == 0, 0.0, np.abs(shift) / error)
    half = tail_value(ratio, level) * sem
    half[sem == 0] = 0.0
    return np.stack([mean - half, mean + half], -1)


def _linear_error(
    times: Float[Array, "draw cluster"], gone: Float[Array, "cluster score"], size: Array
) -> tuple[Float[Array, "draw score"], Float[Array, "draw score"]]:
    """Return the mean deviation of each draw and its standard error over the drawn clusters."""
    total = (times @ size)[:, None]
    shift = times @ gone / total
    drawn = times.sum(1)[:, None]
    squares = (
        times @ gone**2 - 2 * shift * (times @ (gone * size[:, None]))
        + shift**2 * (times @ size**2)[:, None]
    )  # fmt: skip
    tiny = 1e-12 * (times @ gone**2)  # rounding of the difference of squares
    squares = np.where(squares <= tiny, 0.0, squares)
    with np.errstate(divide="ignore", invalid="ignore"):
        return shift, np.sqrt(drawn / (drawn - 1) * squares) / total


def share_interval(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Compute the Wilson interval of a share of n independent trials; (0, 1) without trials."""
    from scipy.stats import binomtest

    if n == 0:
        return 0.0, 1.0
    found = binomtest(hits, n).proportion_ci(level, method="wilson")
    return float(found.low), float(found.high)


def fraction_interval(mean: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Compute Wilson's interval of a mean of n values between 0 and 1; (0, 1) without values.

    Of all values with this mean, those that are 0 or 1 vary most, and for these the interval is
    that of a share.
    """
    from scipy.stats import norm

    if n == 0:
        return 0.0, 1.0
    z2 = float(norm.isf((1 - level) / 2)) ** 2
    middle = (mean + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * mean * (1 - mean) / n + z2**2 / (4 * n**2)) / (1 + z2 / n)
    return max(0.0, min(middle - half, mean)), min(1.0, max(middle + half, mean))


def difference_of_shares(
    hits: Int[Array, "*row"], n: int, others: Int[Array, "*row"], m: int, level: float = 0.95
) -> tuple[Float[Array, "*row"], Float[Array, "*row 2"]]:
    """Compute standard error and interval of hits / n minus others / m, of independent trials.

    Both are those of shares with one hit and one miss more, so that they are not 0 where all trials
    of both have one outcome; the interval is extended to the difference itself.

    Reference: Agresti and Caffo 2000, "Simple and Effective Confidence Intervals for Proportions
    and Differences of Proportions Result from Adding Two Successes and Two Failures".

    Args:
        hits: hits among the first trials.
        n: number of the first trials, at least 1.
        others: hits among the second trials.
        m: their number, at least 1.
        level: confidence level.
    """
    from scipy.stats import norm

    one, other = (hits + 1) / (n + 2), (others + 1) / (m + 2)
    sem = np.sqrt(one * (1 - one) / (n + 2) + other * (1 - other) / (m + 2))
    half = float(norm.isf((1 - level) / 2)) * sem
    apart, middle = hits / n - others / m, one - other
    low, high = np.maximum(middle - half, -1), np.minimum(middle + half, 1)
    return sem, np.stack([np.minimum(low, apart), np.maximum(high, apart)], -1)
