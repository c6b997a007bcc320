"""Order in which heads are displayed, by the meaningful end of a scale; sign of causal scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from interp.core.errors import OptionError, UnknownName
from interp.core.ties import ordered

if TYPE_CHECKING:
    import pandas as pd

End = Literal["high", "low", "both"]
BY = ("end", "score", "abs", "null", "lowest")


def signed(low: float | None, high: float | None) -> bool:
    """Return True if a range contains scores of both signs."""
    return (low is None or low < 0) and (high is None or high > 0)


def end_of(score: pd.Series, declared: str | None) -> str:
    """Return the displayed end: the declared one, or both if there are scores of both signs."""
    if declared is not None:
        return declared
    return "both" if bool((score < 0).any() and (score > 0).any()) else "high"


def first_of_each(
    frame: pd.DataFrame, k: int, by: str, declared: Mapping[str, str | None]
) -> pd.DataFrame:
    """Return the k displayed rows of each metric; see `first`."""
    import pandas as pd

    if by not in BY:
        raise UnknownName("order", by, BY)
    if k < 0:
        raise OptionError(f"k is the number of heads to keep, 0 or more, not {k}")
    groups = frame.loc[frame["n"] > 0].groupby("metric", sort=False)
    parts = [first(rows, k, by, declared[str(name)]) for name, rows in groups]
    return pd.concat(parts) if parts else frame.iloc[:0]


def first(rows: pd.DataFrame, k: int, by: str, declared: str | None = None) -> pd.DataFrame:
    """Get the k displayed rows of one metric, in their order; ties keep the order of the rows."""
    score: Any = rows["score"]
    gap = score - rows["null"].fillna(0.0)
    if by == "end":
        end = end_of(score, declared)
        by = {"high": "score", "low": "lowest"}.get(end, "both")
    size = {"lowest": score, "abs": -score.abs(), "null": -gap.abs()}.get(by, -score)
    order = ordered(size, lowest=True)
    if by != "both" or len(order) <= k:
        return rows.iloc[order[:k]]
    high = (k + 1) // 2
    return rows.iloc[[*order[:high], *order[len(order) - (k - high) :]]]


HELPS = "(+ helps)"
"""Text after the unit of a signed score; `SIGN` states it in full."""
ALONE = "(+ better than the whole layer)"
"""Text after the unit of `all_but_one`."""
SIGN = "positive: the task goes better with the head than without it"


def sign_of(of: str, higher_is_better: bool, magnitude: bool = False) -> int:
    """Return the factor that turns a change of the task into a score positive for helpful heads."""
    return 1 if magnitude or (of == "presence") == higher_is_better else -1
