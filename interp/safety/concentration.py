"""Over how many heads a score is spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from interp.core.columns import only
from interp.core.errors import OptionError
from interp.core.table import HeadTable


@dataclass(frozen=True)
class Spread:
    """How many heads carry a score.

    Args:
        participation: as many heads as would carry it evenly: 1 for one head, all for all alike.
        heads: how many heads have a score.
        for_half, for_90: how many of the highest heads make half and nine tenths of the sum.
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
    """(sum s)² / sum s² of scores that are not negative; negative ones count as 0.

    1 where one head has everything, k where k heads have the same and the others nothing. A head
    with a negative score works against the others, and does not carry the behaviour.

    Raises:
        OptionError: a score that is not finite, or none above zero.
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
    """Over how many heads a metric of a table is spread; heads without a score are left out.

    Args:
        above_null: take the score less the null, which is what the behaviour adds: a constant that
            every head has would else look like spread.

    Raises:
        OptionError: several metrics or models and none named; no score above zero; or no null.
        UnknownName: no such metric.

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
