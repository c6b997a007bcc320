"""Concentration of a score across heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from interp.core.columns import only
from interp.core.errors import OptionError
from interp.core.table import HeadTable


@dataclass(frozen=True)
class Spread:
    """Number of heads that carry a score.

    Args:
        participation: Participation ratio: 1 if one head carries all of the score, the number of
            heads if all have the same score.
        heads: Number of heads with a score.
        for_half, for_90: Number of the highest heads that sum to half and to nine tenths.
    """

    participation: float
    heads: int
    for_half: int
    for_90: int

    @property
    def share(self) -> float:
        """Participation over the number of heads: 1/heads to 1."""
        return self.participation / self.heads

    def __str__(self) -> str:
        return (
            f"as on {self.participation:.3g} of {self.heads} heads; {self.for_half} make half, "
            f"{self.for_90} nine tenths"
        )


def participation_ratio(scores: Any) -> float:
    """Compute the participation ratio (sum s)² / sum s², with negative scores as 0.

    It is 1 if one head has the whole score, and k if k heads have equal scores and all others 0. A
    head with a negative score works against the others, and does not carry the behaviour.
    """
    s = np.asarray(scores, dtype=np.float64).ravel()
    if not np.isfinite(s).all():
        raise OptionError("a score is NaN or infinite; leave out heads without a score")
    s = s.clip(min=0)
    if not s.any():
        raise OptionError("no score is above zero, so there is nothing that could be spread")
    s = s / s.max()  # squares of tiny scores must not vanish
    return float(s.sum() ** 2 / (s**2).sum())


def spread(table: HeadTable, metric: str | None = None, *, above_null: bool = False) -> Spread:
    """Measure the concentration of a metric across heads; heads without a score are left out.

    Args:
        table: Scores of heads.
        metric: The metric; it may be left out if the table has one.
        above_null: Subtract the null from the score. Otherwise a constant that every head has makes
            the score look less concentrated.

    Raises:
        OptionError: There are several metrics or models and none is named; no score is above zero;
            or there is no null.
        UnknownName: There is no such metric.

    Unit: heads.

    Cost: Nothing.

    Null: the null of the table, if `above_null`.

    Not for: scores that every head has some of: take `above_null`.

    Reference: participation ratio; this project's use of it.
    """
    metric = only("metric", metric, table.metrics)
    only("model", None, table.models)
    frame: Any = table.where(metric=metric).to_pandas()
    frame = frame[frame["n"] > 0]
    values = frame["score"].to_numpy(dtype=np.float64)
    if above_null:
        null = frame["null"].to_numpy(dtype=np.float64)
        if np.isnan(null).any():
            raise OptionError(f"{metric} has no null to take off; score it with one")
        values = values - null
    ratio = participation_ratio(values)
    share = np.cumsum(np.sort(values.clip(min=0))[::-1]) / values.clip(min=0).sum()
    half, most = (int(np.searchsorted(share, x - 1e-12) + 1) for x in (0.5, 0.9))
    return Spread(ratio, len(values), half, most)
