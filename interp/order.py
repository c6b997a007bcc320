"""The order in which heads are shown: at the end of a metric's scale that means something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

End = Literal["high", "low", "both"]
ENDS = ("high", "low", "both")
BY = ("end", "score", "abs", "null", "lowest")


def signed(low: float | None, high: float | None) -> bool:
    """Whether a range has scores of both signs."""
    return (low is None or low < 0) and (high is None or high > 0)


def first(rows: pd.DataFrame, k: int, by: str, end: str = "high") -> pd.DataFrame:
    """The k rows of one metric that are shown, in their order; equal ones as they stand.

    Args:
        by: one of `BY`; "end" is what the metric declares.
        end: "high"; "low", the lowest score first; or "both": half of the k from each end, the odd
            one from the high end, in falling order, so that the lowest score stands last.
    """
    score: Any = rows["score"]
    gap = score - rows["null"].fillna(0.0)
    if by == "end":
        by = {"high": "score", "low": "lowest"}.get(end, "both")
    size = {"lowest": score, "abs": -score.abs(), "null": -gap.abs()}.get(by, -score)
    order = size.to_numpy().argsort(kind="stable")
    if by != "both" or len(order) <= k:
        return rows.iloc[order[:k]]
    high = (k + 1) // 2
    return rows.iloc[[*order[:high], *order[len(order) - (k - high) :]]]
