"""Values per prompt, standard errors over clusters of prompts, and p values against random weights.

Prompts that share a needle, a period, a template or an order of items are not independent samples.
They form a cluster: standard errors are computed over clusters, and the degrees of freedom of an
interval follow from the number of clusters.

The null of a metric is its distribution over models with random weights. Under the null the model
is exchangeable with these random draws, and so are the heads of one layer. The null values are
therefore pooled over the heads and draws of a layer, and a score is compared with the predictive
distribution of one further head of one further draw. Variation that the heads of a draw share
counts once per draw, not once per head: the variance is the sum of a between-draw and a within-draw
part, with degrees of freedom by Satterthwaite's formula. Bounded and positive scores are
transformed first. The tail is that of a t distribution fitted to the pooled values on the score's
side, so that a heavy-tailed statistic, such as a kurtosis, needs a larger distance to be
significant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

if TYPE_CHECKING:
    import pandas as pd

_ROUNDING = 1e-13  # relative to the mean: smaller differences count as zero


@dataclass(frozen=True)
class Summary:
    """Mean of every head over trials, its standard error, and the number of trials and clusters."""

    score: Float[np.ndarray, " head"]
    sem: Float[np.ndarray, " head"]
    n: int
    clusters: int


def cluster_summary(
    values: Float[np.ndarray, "trial head"], labels: Sequence[Hashable] | None = None
) -> Summary:
    """Compute the mean over valid trials and its standard error over their clusters.

    The standard error is that of the cluster jackknife: each cluster is left out in turn. With one
    trial per cluster it is the usual standard deviation divided by the square root of n.
    """
    if labels is not None and len(labels) != len(values):
        raise ValueError(
            f"{len(labels)} cluster labels for {len(values)} trials; give one for each"
        )
    counted = np.asarray(~np.isnan(values).any(1))
    x = values[counted]
    n = len(x)
    if n == 0:
        nothing = np.full(values.shape[1], np.nan)
        return Summary(nothing, nothing, 0, 0)
    which = members(labels, counted)
    number = int(which.max()) + 1
    if number < 2:
        return Summary(x.mean(0), np.full(x.shape[1], np.nan), n, number)
    mean = x.mean(0)
    sizes = np.bincount(which, minlength=number)[:, None]
    # deviations instead of sums: leaving out a cluster must not lose digits of a large mean
    gone = np.zeros((number, x.shape[1]))
    np.add.at(gone, which, x - mean)
    without = -gone / (n - sizes)
    error = jackknife_error(without)
    error[error < _ROUNDING * np.abs(mean)] = 0.0
    return Summary(mean, error, n, number)


def jackknife_error(left_out: Float[np.ndarray, "unit *x"]) -> Float[np.ndarray, "*x"]:
    """Compute the standard error of an estimate from its values with each unit left out in turn."""
    n = len(left_out)
    return np.sqrt((n - 1) / n * ((left_out - left_out.mean(0)) ** 2).sum(0))


def score_columns(
    per_prompt: Float[np.ndarray, "row prompt"], labels: Sequence[Hashable] | None = None
) -> dict[str, list[Any]]:
    """Return the columns score, sem, n and clusters of rows whose values per prompt are given.

    A prompt without a value (NaN) is left out of its row alone.
    """
    summaries = [cluster_summary(x[:, None], labels) for x in per_prompt]
    return {
        "score": [float(x.score[0]) for x in summaries],
        "sem": [float(x.sem[0]) for x in summaries],
        "n": [x.n for x in summaries],
        "clusters": [x.clusters for x in summaries],
    }


def effective_number(
    values: Float[np.ndarray, "trial head"], labels: Sequence[Hashable] | None = None
) -> Float[np.ndarray, " head"]:
    """Compute the number of independent trials that would give the same standard error.

    It is the variance of a single trial divided by the squared standard error over clusters: n
    where trials are independent, close to the number of clusters where the trials of a cluster are
    alike. NaN with fewer than two clusters, and where all values of a head are equal.
    """
    one = cluster_summary(values, labels)
    spread = cluster_summary(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        number = spread.n * (spread.sem / one.sem) ** 2
    return np.where(one.sem > 0, number, np.nan)


def cluster_count(n: int, labels: Sequence[Hashable] | None = None) -> int:
    """Return the number of clusters of n trials; n without labels."""
    return n if labels is None else len(set(labels))


def draw_weights(
    times: Int[np.ndarray, "draw cluster"], which: Int[np.ndarray, " trial"]
) -> Float[np.ndarray, "draw trial"]:
    """Return the weight of each trial in the mean of a bootstrap draw of whole clusters."""
    weight = times[:, which].astype(float)
    return weight / weight.sum(1, keepdims=True)


def numbered(n: int, labels: Sequence[Hashable] | None) -> Int[np.ndarray, " trial"]:
    """Return the cluster of each of n trials, numbered from 0 in order of appearance."""
    return members(labels, np.ones(n, dtype=bool))


def members(labels: Sequence[Hashable] | None, counted: np.ndarray) -> Int[np.ndarray, " trial"]:
    """Return the cluster of each counted trial, numbered from 0 in order of appearance."""
    indices = np.flatnonzero(counted).tolist()
    if labels is None:
        return np.arange(len(indices))
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(labels[i], len(number)) for i in indices], dtype=np.int64)


Array = np.ndarray
Transform = Callable[[Array], Array]

LEAST_DRAWS = 3  # with fewer draws the spread cannot be estimated
_TAILS = (3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 40.0, math.inf)  # degrees of freedom tried
_COINCIDE = 0.2  # share of scores that occur again on other random weights: a lattice
_LEAST_IN_TAIL = 5  # values on one side of the mean that a tail fit needs
# tried widths of a tail, in multiples of the median distance
_WIDTHS = np.exp(np.linspace(-1.2, 2.0, 33))


@dataclass(frozen=True)
class Predicted:
    """Predictive mean, spread and degrees of freedom of a further head of a further draw.

    In transformed units.
    """

    mean: float
    sd: float
    freedom: float


def p_of_random_weights(
    scores: Sequence[Float[Array, " head"]],
    draws: Sequence[Float[Array, "draw head"]],
    low: float | None,
    high: float | None,
) -> list[Float[Array, " head"]]:
    """Compute two-sided p values of every head, layer by layer, of one metric in one stack."""
    if not draws or min(map(len, draws)) < LEAST_DRAWS:
        return [np.full(len(x), np.nan) for x in scores]
    turn = transform(draws, low, high)
    expected = [predict(turn(x)) for x in draws]
    apart = [
        ((turn(x) - e.mean) / e.sd).ravel()
        for x, e in zip(draws, expected, strict=True)
        if e.sd > 0
    ]
    pooled = np.concatenate(apart) if apart else np.zeros(0)
    tails = {side: _tail(np.abs(pooled[np.sign(pooled) == side])) for side in (-1, 1)}
    p_values = [_p(turn(x), e, tails) for x, e in zip(scores, expected, strict=True)]
    if not is_lattice(draws):
        return p_values
    ranks = [_rank_p(turn(x), e, pooled) for x, e in zip(scores, expected, strict=True)]
    return [np.maximum(p, rank) for p, rank in zip(p_values, ranks, strict=True)]


def is_lattice(draws: Sequence[Float[Array, "draw head"]]) -> bool:
    """Return True if scores on different random weights often coincide, as counts do.

    Heads of one draw may coincide because they share keys; that is not counted, and neither are
    layers in which all scores are equal.
    """
    shared = total = 0
    for layer in draws:
        width = np.ptp(layer)
        if width == 0:
            continue
        values = np.round(layer / width, 7)
        for at, row in enumerate(values):
            shared += int(np.isin(row, np.delete(values, at, 0)).sum())
            total += len(row)
    return total > 0 and shared / total > _COINCIDE


def _rank_p(values: Array, e: Predicted, pooled: Array) -> Array:
    """Compute two-sided p values from the rank among the draws' distances from their mean."""
    if e.sd == 0:
        return np.zeros(len(values))
    distance = np.abs((values - e.mean) / e.sd)
    beyond = (np.abs(pooled)[None] >= distance[:, None] - 1e-9).sum(1)
    return (beyond + 1) / (len(pooled) + 1)


def null_spread(draws: Float[Array, "draw head"]) -> float:
    """Compute the predictive standard deviation of a further head, in the units of the score."""
    return predict(draws).sd if len(draws) > 1 else math.nan


def transform(draws: Sequence[Array], low: float | None, high: float | None) -> Transform:
    """Choose the transform that makes a metric's pooled null values closest to Gaussian.

    The arcsine of the square root for metrics bounded on both sides, the logarithm of the distance
    from the bound for those bounded above only, and the logarithm of positive values where it makes
    them less skewed.
    """
    if low is not None and high is not None:
        return lambda x: np.arcsin(np.sqrt(np.clip((x - low) / (high - low), 0, 1)))
    tiny = np.finfo(float).tiny
    if low is None and high is not None:
        return lambda x: -np.log(np.maximum(high - x, tiny))
    end = 0.0 if low is None else low

    def log(x: Array) -> Array:
        return np.log(np.maximum(x - end, tiny))

    positive = all((x > end).all() for x in draws)
    if positive and _skew(draws, log) < _skew(draws, lambda x: x):
        return log
    return lambda x: x


def predict(draws: Float[Array, "draw head"]) -> Predicted:
    """Predict a further head of a further draw from the draws of a layer.

    The variance adds up the variation of the draws' means, the rest of the variation between heads
    within a draw, and the error of the mean of all draws. Where the variances inside draws differ
    more than those of equal Gaussian draws would, the degrees of freedom are at most those of the
    t distribution that such a mixture has.
    """
    m, heads = draws.shape
    means = draws.mean(1)
    between = means.var(ddof=1) * (1 + 1 / m)
    within = draws.var(1, ddof=1).mean() * (1 - 1 / heads) if heads > 1 else 0.0
    variance = between + within
    if variance <= (1e-12 * np.abs(draws).max(initial=0.0)) ** 2:
        return Predicted(float(means.mean()), 0.0, math.inf)
    error = between**2 / (m - 1)
    if heads > 1:
        error += within**2 / (m * (heads - 1))
    freedom = float(variance**2 / error)
    if heads > 1:
        each = draws.var(1, ddof=1)
        excess = each.var(ddof=1) - 2 * each.mean() ** 2 / (heads - 1)
        # variances of a t distribution with v degrees of freedom vary by 2 / (v - 4), relatively
        freedom = min(freedom, 4 + 2 * each.mean() ** 2 / excess if excess > 0 else math.inf)
    return Predicted(float(means.mean()), math.sqrt(variance), freedom)


def _p(values: Array, e: Predicted, tails: dict[int, tuple[float, float] | None]) -> Array:
    from scipy.special import stdtr

    if e.sd == 0:  # all heads of all draws have the same score
        same = np.isclose(values, e.mean, rtol=1e-6, atol=1e-12)
        return np.where(same, 1.0, 0.0)
    out = np.ones(len(values))
    for at, z in enumerate((values - e.mean) / e.sd):
        tail = tails[1 if z > 0 else -1]
        if tail is not None:
            width, freedom = tail
            out[at] = 2 * stdtr(min(freedom, e.freedom), -abs(z) / width)
    return np.clip(out, 0.0, 1.0)


def _tail(distance: Float[Array, " value"]) -> tuple[float, float] | None:
    """Fit the most likely t distribution to one side; return its width and degrees of freedom."""
    from scipy.special import betaln

    if len(distance) < _LEAST_IN_TAIL:
        return None
    widths = np.median(distance) * _WIDTHS
    best = (-math.inf, 1.0, math.inf)
    for freedom in _TAILS:
        u = distance[None] / widths[:, None]
        if math.isinf(freedom):
            each = -(u**2) / 2 - math.log(2 * math.pi) / 2
        else:
            scale = betaln(freedom / 2, 0.5) + math.log(freedom) / 2
            each = -(freedom + 1) / 2 * np.log1p(u**2 / freedom) - scale
        likelihood = each.sum(1) - len(distance) * np.log(widths)
        at = int(likelihood.argmax())
        # the width is estimated too: tails are compared by their mean likelihood over widths
        top = float(likelihood[at])
        total = top + math.log(float(np.exp(likelihood - top).mean()))
        best = max(best, (total, float(widths[at]), freedom))
    return best[1], best[2]


def _skew(draws: Sequence[Array], turn: Transform) -> float:
    """Return the absolute skewness of the pooled values, each layer standardised by itself."""
    parts = []
    for x in draws:
        y = turn(x)
        if y.std() > 0:
            parts.append(((y - y.mean()) / y.std()).ravel())
    return abs(float((np.concatenate(parts) ** 3).mean())) if parts else 0.0


@dataclass(frozen=True, eq=False)
class PromptValues:
    """Values of every head on every prompt, of one metric of one model.

    Args:
        sites: values by stack and layer.
        clusters: a label per prompt where prompts share something.
        ids: identity of each prompt, equal for equal prompts of any run; None where it is unknown.
        null: the same values on the null of each prompt (its shuffled tokens, or the null trials of
            an experiment), where there is one per prompt. Random weights have none: their unit is
            the draw.
    """

    sites: Mapping[tuple[str, int], Float[np.ndarray, "prompt head"]]
    clusters: tuple[str, ...] | None = None
    ids: tuple[str, ...] | None = None
    null: Mapping[tuple[str, int], Float[np.ndarray, "prompt head"]] | None = None

    def of_rows(self, frame: pd.DataFrame) -> Float[np.ndarray, "row prompt"] | None:
        """Return the values of the rows of a table, or None where it has no rows."""
        rows = zip(frame["stack"], frame["layer"], frame["head"], strict=True)
        columns = [self.sites[stack, layer][:, head] for stack, layer, head in rows]
        return np.stack(columns) if columns else None
