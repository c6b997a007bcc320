"""Means over prompts of which some share something, and their errors.

Prompts that share a needle, a period, a template or an order of items are no independent draws of
what a score is to hold for. They are a cluster: the standard error is that of clusters, and so are
the degrees of freedom of an interval.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

_ROUNDING = 1e-13  # of the mean: what differs by less is equal


@dataclass(frozen=True)
class Summary:
    """Mean of every head over trials, its standard error, and how many trials and clusters."""

    score: Float[np.ndarray, " head"]
    sem: Float[np.ndarray, " head"]
    n: int
    clusters: int


def cluster_summary(
    values: Float[np.ndarray, "trial head"], labels: Sequence[Hashable] | None = None
) -> Summary:
    """Mean over the trials that say something, and its standard error over their clusters.

    The error is the cluster jackknife: each cluster is left out in turn. With one trial per cluster
    it is the usual standard deviation over the root of n.

    Args:
        values: NaN in any head leaves the trial out.
        labels: the cluster of each trial; without labels every trial is its own.

    Raises:
        ValueError: another number of labels than of trials.
    """
    if labels is not None and len(labels) != len(values):
        raise ValueError(f"{len(labels)} cluster labels for {len(values)} trials; one is for each")
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
    # deviations, not sums: leaving out a cluster must not lose digits of a large mean
    gone = np.zeros((number, x.shape[1]))
    np.add.at(gone, which, x - mean)
    without = -gone / (n - sizes)
    variance = (number - 1) / number * ((without - without.mean(0)) ** 2).sum(0)
    error = np.sqrt(variance)
    error[error < _ROUNDING * np.abs(mean)] = 0.0
    return Summary(mean, error, n, number)


def cluster_count(n: int, labels: Sequence[Hashable] | None = None) -> int:
    """The number of clusters of n trials; n without labels."""
    return n if labels is None else len(set(labels))


def draw_weights(
    times: Int[np.ndarray, "draw cluster"], which: Int[np.ndarray, " trial"]
) -> Float[np.ndarray, "draw trial"]:
    """The weight of each trial in the mean of a bootstrap draw of whole clusters.

    Args:
        times: how often each draw holds each cluster.
        which: the cluster of each trial, as `numbered` gives it.
    """
    weight = times[:, which].astype(float)
    return weight / weight.sum(1, keepdims=True)


def numbered(n: int, labels: Sequence[Hashable] | None) -> Int[np.ndarray, " trial"]:
    """The cluster of each of n trials, numbered from 0 in order of appearance."""
    return members(labels, np.ones(n, dtype=bool))


def members(labels: Sequence[Hashable] | None, counted: np.ndarray) -> Int[np.ndarray, " trial"]:
    """The cluster of each trial that counts, numbered from 0 in order of appearance."""
    kept = np.flatnonzero(counted).tolist()
    if labels is None:
        return np.arange(len(kept))
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(labels[i], len(number)) for i in kept], dtype=np.int64)


def interval(
    score: float, sem: float, clusters: int, level: float = 0.95
) -> tuple[float, float] | None:
    """The interval of a mean by the t distribution; None without an error.

    Args:
        clusters: independent units behind the mean; one more than the degrees of freedom.
    """
    from scipy.stats import t as student

    if math.isnan(sem) or clusters < 2:
        return None
    half = float(student.isf((1 - level) / 2, clusters - 1)) * sem
    return score - half, score + half
