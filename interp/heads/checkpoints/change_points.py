"""Change points of curves over checkpoints: steps between which a score changes its level.

A curve is cut in two where the difference of the mean levels explains most of its variation (least
squares; binary segmentation, Scott and Knott 1974). The difference is tested over clusters of
prompts and multiplied by the number of possible cuts, since the largest of them is taken. The parts
are cut again where the same holds. A bootstrap of the prompts gives the interval of the cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.core import clusters as grouped
from interp.core.standard_errors import t_test_p
from interp.core.statistics import percentile_interval, redraw_counts

LEAST = 0.2  # share of a curve's range: after the first, smaller changes are left out
ALPHA = 0.05
DRAWS = 500


@dataclass(frozen=True)
class ChangePoint:
    """One change of a curve.

    Args:
        at: index of the first checkpoint after it.
        low: index of the first checkpoint after the earliest cut in the 95 % interval.
        high: the same for the latest cut.
        size: mean level after the change minus that before it.
        explained: share of the variation of the cut part that the two levels explain.
        p: p of the difference, corrected for the choice of the cut.
    """

    at: int
    low: int
    high: int
    size: float
    explained: float
    p: float


def changes(
    values: Float[np.ndarray, "step prompt"],
    labels: Sequence[str] | None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[ChangePoint]:
    """Find the changes of a curve, the largest part first; the first is always returned."""
    span = float(np.ptp(values.mean(1)))
    return list(_cut(values, labels, 0, span, draws, seed))


def _cut(
    values: np.ndarray,
    labels: Sequence[str] | None,
    start: int,
    span: float,
    draws: int,
    seed: int,
) -> Iterator[ChangePoint]:
    n = len(values)
    if n < 2:
        return
    gains = _gains(values.mean(1)[None])[0]
    k = int(gains.argmax()) + 1
    gap = values[k:].mean(0) - values[:k].mean(0)
    size = float(gap.mean())
    p = min(1.0, _p(gap, labels) * (n - 1))
    curve = values.mean(1)
    total = float(((curve - curve.mean()) ** 2).sum())
    low, high = _interval(values, labels, draws, seed)
    explained = float(gains[k - 1]) / total if total > 0 else math.nan
    yield ChangePoint(start + k, start + low, start + high, size, explained, p)
    if not p < ALPHA:
        return
    for begin, part in ((start, values[:k]), (start + k, values[k:])):
        if len(part) > 1 and float(_gap(part)) >= LEAST * span:
            yield from _cut(part, labels, begin, span, draws, seed)


def _gap(values: np.ndarray) -> float:
    """Return the size of the best cut of a part."""
    k = int(_gains(values.mean(1)[None])[0].argmax()) + 1
    return abs(float(values[k:].mean() - values[:k].mean()))


def _gains(curves: Float[np.ndarray, "draw step"]) -> Float[np.ndarray, "draw cut"]:
    """Return the sum of squares that each cut explains, for every curve."""
    n = curves.shape[1]
    before = np.arange(1, n)
    sums = curves.cumsum(1)
    left = sums[:, :-1] / before
    right = (sums[:, -1:] - sums[:, :-1]) / (n - before)
    return before * (n - before) / n * (right - left) ** 2


def _p(gap: Float[np.ndarray, " prompt"], labels: Sequence[str] | None) -> float:
    one = grouped.cluster_summary(gap[:, None], labels)
    return float(t_test_p(one.score[0], one.sem[0], one.clusters - 1))


def _interval(
    values: np.ndarray, labels: Sequence[str] | None, draws: int, seed: int
) -> tuple[int, int]:
    """Return the 2.5 % and 97.5 % quantile of the best cut over bootstrap draws of prompts."""
    n = values.shape[1]
    number = grouped.cluster_count(n, labels)
    times = redraw_counts(number, draws, np.random.default_rng(seed))
    curves = grouped.draw_weights(times, grouped.numbered(n, labels)) @ values.T
    cuts = _gains(curves).argmax(1) + 1
    low, high = percentile_interval(cuts.astype(float))
    return math.floor(low), math.ceil(high)
