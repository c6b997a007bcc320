"""Confidence intervals of sums of means that are estimated from few values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from interp.core.errors import OptionError

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
    found = student.isf((1 - level) / 2, df) * np.sqrt(total)
    return np.where(np.isnan(weight), math.nan, found)


def around(
    score: Float[Array, " x"], parts: Sequence[ErrorPart], level: float = 0.95
) -> Float[Array, "x 2"]:
    """Return the interval of each score, low and high."""
    half = half_width(parts, level)
    return np.stack([score - half, score + half], -1)
