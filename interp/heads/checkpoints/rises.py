"""Order in which curves rise: the step at which each passes half of its rise, and who is first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from interp.core.errors import OptionError
from interp.core.intervals import share_interval

if TYPE_CHECKING:
    import pandas as pd


def half_rise(
    steps: Sequence[float],
    curve: Float[np.ndarray, " step"],
    *,
    base: float | None = None,
    least: float = 0.0,
) -> float:
    """Return the step at which a curve first passes half of its rise, or NaN.

    Half is the middle between the base and the last value of the curve. The step is interpolated
    linearly between the checkpoints before and after it; it is the first step if the curve begins
    at half or above.

    Args:
        steps: training steps, rising.
        curve: the score at each of them.
        base: value from which the rise is counted, such as chance; by default the first.
        least: a curve that rises by no more than this, or falls, has no such step.

    Raises:
        OptionError: fewer than two steps, steps that do not rise, or another number of scores.
    """
    at, y = np.asarray(steps, dtype=float), np.asarray(curve, dtype=float)
    if len(at) < 2 or at.shape != y.shape or not (np.diff(at) > 0).all():
        raise OptionError(
            f"{at.size} steps and {y.size} scores: give two or more rising steps, each with a score"
        )
    base = float(y[0]) if base is None else base
    if not y[-1] - base > max(least, 0.0):
        return math.nan
    half = (base + y[-1]) / 2
    after = int(np.flatnonzero(y >= half)[0])
    if after == 0:
        return float(at[0])
    share = (half - y[after - 1]) / (y[after] - y[after - 1])
    return float(at[after - 1] + share * (at[after] - at[after - 1]))


def rise_order(times: Mapping[str, Sequence[float]], *, level: float = 0.95) -> pd.DataFrame:
    """Compare in every run which of two curves rose first: one row per pair of curves.

    Args:
        times: for each curve its step of `half_rise` in every run, the runs in the same order; NaN
            where it did not rise, and such a run does not count for its pairs.
        level: level of the interval.

    Returns:
        `first` and `second`, `share` of the `n` runs in which the first rose before the second
        (equal steps count as half), its Wilson interval `low` to `high`, and `null`, 0.5.

    Raises:
        OptionError: curves with different numbers of runs.
    """
    import pandas as pd

    if len({len(x) for x in times.values()}) > 1:
        raise OptionError("every curve needs a step for every run; give NaN where there is none")
    rows = []
    for first, second in itertools.combinations(times, 2):
        gap = np.asarray(times[second], float) - np.asarray(times[first], float)
        gap = gap[~np.isnan(gap)]
        hits = float((gap > 0).sum() + (gap == 0).sum() / 2)
        low, high = share_interval(math.floor(hits), len(gap), level)
        if hits % 1:  # a half: the interval covers both whole numbers beside it
            high = share_interval(math.ceil(hits), len(gap), level)[1]
        rows.append(
            {
                "first": first,
                "second": second,
                "share": hits / len(gap) if len(gap) else math.nan,
                "low": low,
                "high": high,
                "null": 0.5,
                "n": len(gap),
            }
        )
    return pd.DataFrame(rows)
