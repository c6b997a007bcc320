"""Confidence intervals of means of few numbers, whose spread is known from these numbers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from interp.core.errors import OptionError

Array = np.ndarray
ErrorPart = tuple[Float[Array, "*x"] | float, float]
"""A standard error and its degrees of freedom: one less than the numbers it was estimated from."""


def half_width(parts: Sequence[ErrorPart], level: float = 0.95) -> Float[Array, "*x"]:
    """Half the width of the interval of a sum whose errors are independent.

    The t quantile at the degrees of freedom of Welch and Satterthwaite: (sum of s²)² over the sum
    of s⁴ / df. With many numbers it is the normal quantile; with four it is 3.18 in place of 1.96,
    since four numbers hardly tell how far they spread. NaN where an error is unknown.

    Raises:
        OptionError: a level outside 0 to 1.
    """
    from scipy.stats import t as student

    if not 0 < level < 1:
        raise OptionError(f"level={level}; a level lies between 0 and 1")
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
    """The interval of each score, low and high."""
    half = half_width(parts, level)
    return np.stack([score - half, score + half], -1)
