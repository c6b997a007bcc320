"""Bars of the rows of a result, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interp.draw.colours import COLOURS
from interp.draw.page import text

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


def bars(rows: pd.DataFrame, names: Sequence[str], *, title: str, unit: str) -> go.Figure:
    """Draw one bar per row with its confidence interval, where every row has one.

    Args:
        rows: A frame with the columns `score`, `low` and `high`.
        names: A name for each row.
        title: The title above the figure.
        unit: The unit beside the axis of the scores.
    """
    import plotly.graph_objects as go

    error: dict[str, Any] = {"visible": False}
    if bool(rows["low"].notna().to_numpy().all()):
        error = {"type": "data", "symmetric": False, "array": rows["high"] - rows["score"]}
        error |= {"arrayminus": rows["score"] - rows["low"]}
    named = [text(name) for name in names]
    bar = go.Bar(x=named, y=rows["score"], error_y=error, marker_color=COLOURS[0])
    figure = go.Figure(bar)
    figure.update_layout(template="plotly_white", title=text(title))
    figure.update_yaxes(title_text=text(unit))
    return figure
