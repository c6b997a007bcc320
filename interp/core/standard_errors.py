"""Standard errors of means over independent trials, and p values of Student's t.

No other file divides a standard deviation by the root of a number, or asks for the tail of a t
distribution (`tests/house/test_statistics.py`), so that one test by the formula holds them all.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
from jaxtyping import Float

from interp.core.clusters import cluster_summary

Array = np.ndarray


def standard_error(
    values: Float[Array, "*x trial"], clusters: Sequence[Hashable] | None = None
) -> Float[Array, "*x"]:
    """Compute the standard error of the mean over trials; NaN for one trial or cluster."""
    n = values.shape[-1]
    if clusters is not None and len(set(clusters)) < n:
        error = np.full(len(values), math.nan)
        known = ~np.isnan(values).any(1)  # a row without values does not affect the others
        error[known] = cluster_summary(values[known].T, clusters).sem
        return error
    if n < 2:
        return np.full(values.shape[:-1], math.nan)
    return values.std(-1, ddof=1) / math.sqrt(n)


def t_test_p(
    score: Float[Array, "*x"] | float,
    sem: Float[Array, "*x"] | float,
    df: Float[Array, "*x"] | float,
) -> Float[Array, "*x"]:
    """Compute the two-sided p value of a score against 0 by Student's t; NaN without an error.

    An exact score, whose error is 0, has p 1 if it is 0 and p 0 otherwise. Degrees of freedom below
    1 count as 1.
    """
    from scipy.special import stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.where(np.equal(score, 0), 0.0, np.abs(score) / np.asarray(sem, dtype=float))
    return np.where(np.isnan(sem), math.nan, 2 * stdtr(np.maximum(df, 1), -distance))
