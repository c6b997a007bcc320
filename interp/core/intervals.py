"""Confidence intervals of means and of sums of means that are estimated from few values."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int

from interp.core.clusters import cluster_count, numbered
from interp.core.errors import OptionError
from interp.core.statistics import (
    DRAWS,
    percentile_interval,
    redraw_counts,
    tails_of,
)

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray
ErrorPart = tuple[Float[Array, "*x"] | float, float]
"""Standard error and its degrees of freedom: one less than the values it was estimated from."""


def half_width(parts: Sequence[ErrorPart], level: float = 0.95) -> Float[Array, "*x"]:
    """Return half the width of the interval of a sum whose errors are independent.

    The t quantile has the degrees of freedom of Welch and Satterthwaite: (sum of s²)² divided by
    the sum of s⁴ / df. With many values it approaches the normal quantile 1.96; with four it is
    3.18, because four values estimate their spread poorly. NaN where a standard error is unknown.
    """
    from scipy.special import stdtrit

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
    quantile = np.abs(stdtrit(distinct, (1 - level) / 2))[at.reshape(df.shape)]
    width = quantile * np.sqrt(total)
    return np.where(np.isnan(weight), math.nan, width)


def normal_as_t(deviations: float, n: int) -> float:
    """Return the quantile of Student's t, for n units, with the tail of a normal distribution's.

    A difference that exceeds it, in estimated standard errors, is as improbable by chance as one
    that exceeds `deviations` known standard errors. n is at least 2.
    """
    from scipy.special import ndtr, stdtrit

    return -float(stdtrit(n - 1, ndtr(-deviations)))


def around(
    score: Float[Array, " x"], parts: Sequence[ErrorPart], level: float = 0.95
) -> Float[Array, "x 2"]:
    """Return the interval of each score, low and high."""
    half = half_width(parts, level)
    return np.stack([score - half, score + half], -1)


LEAST_CLUSTERS = 6
"""Fewest clusters from which the interval of a mean of any kind of values can reach its level."""
LEAST_APART = 5
"""Fewest clusters that must differ from a value that more than half of them share, so that their
values say how far; twice as many of values without bounds."""
_ENOUGH = 16  # clusters from which the quantiles of a bootstrap of skewed values need no margin
EXACT = "a score of weights is exact"
NO_SCORE = "there is no score"
TOO_FEW = "too few"
"""First words of every reason that more, or less alike, clusters would remove."""
_AT_ONCE = 512  # scores whose draws are in memory together
_SAME = 1e-6  # of the largest value, as float32 rounds: closer values are one


class MeanIntervals(NamedTuple):
    """Interval of each mean, or the reason why there is none.

    Args:
        ends: low and high end of each score; NaN without an interval.
        why_not: per score the reason, "" with an interval.
    """

    ends: Float[Array, "score 2"]
    why_not: tuple[str, ...]

    @property
    def columns(self) -> dict[str, Any]:
        """Columns `low`, `high` and `why_no_interval`, one entry per score."""
        low, high = self.ends.T
        return {"low": low, "high": high, "why_no_interval": list(self.why_not)}

    def in_frame(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows with the columns `low`, `high` and `why_no_interval`, in the same order."""
        return rows.assign(**self.columns)


def mean_intervals(
    values: Float[Array, "score trial"],
    level: float = 0.95,
    *,
    clusters: Sequence[Hashable] | None = None,
    bounds: tuple[float | None, float | None] = (None, None),
    others: Sequence[ErrorPart] = (),
    draws: int = DRAWS,
    seed: int = 0,
) -> MeanIntervals:
    """Compute the interval of the mean of every score over trials, chosen by the kind of values.

    Of values most of which are equal (sparse scores, such as 0 or 1) a sample says how often they
    differ, and not by how much: where more than half of the clusters share one value and fewer than
    `LEAST_APART` differ from it, the interval holds every mean that the exact upper limit of the
    share of clusters that differ (Clopper and Pearson 1934) and the bounds of the values allow.
    Without bounds, or if no cluster differs, there is no interval.

    Of other values it holds the t interval and the equal-tailed bootstrap-t interval over whole
    clusters (Hall 1988, "Theoretical Comparison of Bootstrap Confidence Intervals"), the latter at
    a level that grows as clusters become fewer than 16. Where the values have no bounds, are of one
    sign and less skewed on a logarithmic scale, it also holds the generalised interval of a
    log-normal mean (Krishnamoorthy and Mathew 2003). `benchmarks/interval_coverage.md` has its
    coverage for each kind.

    Independent errors of the same scores, such as those over samples, extend each end by the root
    of the sum of squared distances (Zou and Donner 2008, "Construction of confidence limits about
    effect measures").
    """
    if not 0 < level < 1:
        raise OptionError(f"level={level} is not a confidence level; give a number between 0 and 1")
    number = cluster_count(values.shape[1], clusters)
    ends = np.full((len(values), 2), math.nan)
    known = np.isfinite(values).all(1)
    if not known.all():
        known_others = [(np.broadcast_to(sem, known.shape)[known], df) for sem, df in others]
        some = mean_intervals(
            values[known],
            level,
            clusters=clusters,
            bounds=bounds,
            others=known_others,
            draws=draws,
            seed=seed,
        )
        ends[known] = some.ends
        stated = dict(zip(np.flatnonzero(known).tolist(), some.why_not, strict=True))
        return MeanIntervals(ends, tuple(stated.get(at, NO_SCORE) for at in range(len(values))))
    unit = "cluster" if clusters is not None else "prompt"
    if number < LEAST_CLUSTERS:
        why = f"{TOO_FEW}: {number} {unit}{'s' * (number != 1)} of at least {LEAST_CLUSTERS}"
        return MeanIntervals(ends, (why,) * len(values))
    which = numbered(values.shape[1], clusters)
    size = np.bincount(which, minlength=number).astype(float)
    total = np.zeros((number, len(values)))
    np.add.at(total, which, values.T)
    each = total / size[:, None]  # mean of every cluster
    shared, apart = _shared_value(each)
    bounded = bounds[0] is not None and bounds[1] is not None
    sparse = (2 * apart < number) & (apart < (LEAST_APART if bounded else 2 * LEAST_APART))
    why_not = [""] * len(values)
    if bounded:
        # the mean is the shared value plus the share of the others times their distance from it
        some = sparse & (apart > 0)
        most = _largest_share(apart[some], number, level)[:, None]
        ends[some] = (1 - most) * shared[some, None] + most * np.array(bounds, dtype=float)
    low, high = bounds
    possible = -math.inf if low is None else low, math.inf if high is None else high
    rest = np.flatnonzero(~sparse)
    for start in range(0, len(rest), _AT_ONCE):
        at = rest[start : start + _AT_ONCE]
        intervals = _continuous(values[at], which, size, level, bounds == (None, None), draws, seed)
        intervals = intervals.clip(*possible)
        ends[at] = np.where(np.isfinite(intervals).all(1, keepdims=True), intervals, math.nan)
    for at in np.flatnonzero(np.isnan(ends).any(1)):
        if not sparse[at]:
            why = f"the largest of {number} {unit}s decide where the interval ends"
        elif apart[at] == 0:
            why = f"all {number} {unit}s have the same value"
        else:
            why = f"{apart[at]} of {number} {unit}s differ from the others"
        why_not[at] = f"{TOO_FEW}: {why}"
    mean = values.mean(1)  # by rounding it may lie just outside
    ends = np.stack([np.minimum(ends[:, 0], mean), np.maximum(ends[:, 1], mean)], -1)
    if others:
        half = np.broadcast_to(half_width(others, level), mean.shape)
        apart = np.hypot(ends - mean[:, None], half[:, None])
        ends = mean[:, None] + apart * np.array([-1, 1])
        for at in np.flatnonzero(np.isnan(half)):
            why_not[at] = why_not[at] or f"{TOO_FEW}: one sample says nothing of its error"
    return MeanIntervals(ends, tuple(why_not))


Key = TypeVar("Key")


def site_intervals(
    sites: Mapping[Key, Float[Array, "trial head"]],
    clusters: Sequence[Hashable] | None,
    bounds: tuple[float | None, float | None],
    level: float = 0.95,
) -> dict[Key, MeanIntervals]:
    """Compute the interval of the score of every head of one metric; see `mean_intervals`."""
    alike: dict[bytes, list[Key]] = {}  # sites with the same trials share their draws
    for site, values in sites.items():
        alike.setdefault((~np.isnan(values).any(1)).tobytes(), []).append(site)
    out: dict[Key, MeanIntervals] = {}
    for mask, mine in alike.items():
        valid = np.frombuffer(mask, dtype=bool)
        indices = np.flatnonzero(valid).tolist()
        labels = None if clusters is None else [clusters[i] for i in indices]
        values = np.concatenate([sites[site][valid] for site in mine], 1).T
        ends, why_not = mean_intervals(values, level, clusters=labels, bounds=bounds)
        start = 0
        for site in mine:
            stop = start + sites[site].shape[1]
            out[site] = MeanIntervals(ends[start:stop], why_not[start:stop])
            start = stop
    return out


def _shared_value(each: Float[Array, "cluster score"]) -> tuple[Array, Int[Array, " score"]]:
    """Return the most frequent value of each score, and how many clusters differ from it."""
    ordered = np.sort(each, 0)
    middle = ordered[len(each) // 2]  # a value that more than half share is the median
    near = np.abs(each - middle) <= _SAME * np.abs(each).max(0)
    return middle, (~near).sum(0)


def _largest_share(hits: Int[Array, " score"], n: int, level: float) -> Float[Array, " score"]:
    """Return the exact upper limits of shares of which `hits` of n were seen."""
    from scipy.special import betaincinv

    return betaincinv(hits + 1, n - hits, level)


def _continuous(
    values: Float[Array, "score trial"],
    which: Int[Array, " trial"],
    size: Float[Array, " cluster"],
    level: float,
    unbounded: bool,
    draws: int,
    seed: int,
) -> Float[Array, "score 2"]:
    """Return the union of the t interval, the bootstrap-t interval and the log-normal one."""
    number = len(size)
    mean = values.mean(1)
    gone = np.zeros((number, len(values)))
    np.add.at(gone, which, (values - mean[:, None]).T)  # sum of deviations, per cluster
    sem = _linear_error(np.ones((1, number)), gone, size)[1][0]
    interval = around(mean, [(sem, number - 1.0)], level)
    rng = np.random.default_rng(seed)
    times = redraw_counts(number, draws, rng).astype(float)
    shift, error = _linear_error(times, gone, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        # a draw of equal clusters has no error; its ratio is beyond every quantile
        ratio = np.where(shift == 0, 0.0, shift / error)
    tail = (1 - level) / 2 * min(1.0, number / _ENOUGH)
    last = draws - 1
    ends = math.floor(tail * last), math.ceil((1 - tail) * last)
    low, high = np.partition(np.ascontiguousarray(ratio.T), ends, axis=1)[:, ends].T
    interval = _joined(interval, np.stack([mean - high * sem, mean - low * sem], -1))
    if unbounded:
        # values of clusters to first order: clusters of other sizes are no larger values
        values = mean + gone / size.mean()
        interval = _joined(interval, _log_normal(values, 2 * tail, rng))
    return interval


def _joined(one: Float[Array, "score 2"], other: Float[Array, "score 2"]) -> Array:
    return np.stack([np.fmin(one[:, 0], other[:, 0]), np.fmax(one[:, 1], other[:, 1])], -1)


def _log_normal(
    each: Float[Array, "cluster score"], alpha: float, rng: np.random.Generator
) -> Float[Array, "score 2"]:
    """Return generalised intervals of log-normal means; NaN where values are not of that kind."""
    sign = np.where(each.mean(0) < 0, -1.0, 1.0)
    number, out = len(each), np.full((each.shape[1], 2), math.nan)
    positive = (each * sign > 0).all(0)
    logs = np.log(np.where(positive, each * sign, 1.0))
    mine = positive & (_skewness(logs) < _skewness(each))
    if not mine.any():
        return out
    z, u = rng.normal(size=(DRAWS, 1)), rng.chisquare(number - 1, size=(DRAWS, 1)) / (number - 1)
    spread = logs[:, mine].std(0, ddof=1)
    drawn = logs[:, mine].mean(0) - z * spread / np.sqrt(number * u) + spread**2 / (2 * u)
    with np.errstate(over="ignore"):
        ends = np.exp(percentile_interval(drawn, tails_of(1 - alpha), axis=0)).T
    out[mine] = np.sort(ends * sign[mine, None], -1)
    return out


def _skewness(x: Float[Array, "cluster score"]) -> Float[Array, " score"]:
    """Return the absolute skewness of each column; 0 for equal values."""
    off = x - x.mean(0)
    spread = (off**2).mean(0) ** 1.5
    return np.abs(np.divide((off**3).mean(0), spread, out=np.zeros_like(spread), where=spread > 0))


def _linear_error(
    times: Float[Array, "draw cluster"], gone: Float[Array, "cluster score"], size: Array
) -> tuple[Float[Array, "draw score"], Float[Array, "draw score"]]:
    """Return the mean deviation of each draw and its standard error over the drawn clusters."""
    total = (times @ size)[:, None]
    shift = times @ gone / total
    drawn = times.sum(1)[:, None]
    products = times @ gone**2
    squares = (
        products
        - 2 * shift * (times @ (gone * size[:, None]))
        + shift**2 * (times @ size**2)[:, None]
    )
    squares = np.where(squares <= 1e-12 * products, 0.0, squares)  # rounding of their difference
    with np.errstate(divide="ignore", invalid="ignore"):
        return shift, np.sqrt(drawn / (drawn - 1) * squares) / total


def share_interval(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Compute the Wilson interval of a share of n independent trials; (0, 1) without trials."""
    return fraction_interval(hits / max(n, 1), n, level)


def fraction_interval(mean: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Compute Wilson's interval of a mean of n values between 0 and 1; (0, 1) without values.

    Of all values with this mean, those that are 0 or 1 vary most, and for these the interval is
    that of a share.
    """
    from scipy.special import ndtri

    if n == 0:
        return 0.0, 1.0
    z2 = float(ndtri((1 - level) / 2)) ** 2
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
    """
    from scipy.special import ndtri

    one, other = (hits + 1) / (n + 2), (others + 1) / (m + 2)
    sem = np.sqrt(one * (1 - one) / (n + 2) + other * (1 - other) / (m + 2))
    half = -float(ndtri((1 - level) / 2)) * sem
    apart, middle = hits / n - others / m, one - other
    low, high = np.maximum(middle - half, -1), np.minimum(middle + half, 1)
    return sem, np.stack([np.minimum(low, apart), np.maximum(high, apart)], -1)
