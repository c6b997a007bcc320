"""Plotly figure of the faithfulness of attribution methods, for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.attribution.evaluation.result import MEASURES

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.attribution.evaluation.result import Faithfulness


def method_bars(found: Faithfulness) -> go.Figure:
    """Draw one bar per row of one measure, the best on top, with plus and minus one SEM."""
    import plotly.graph_objects as go

    frame = found.wide()
    frame = frame[frame["n"] > 0].iloc[::-1]
    measure = str(found.wide()["metric"].iloc[0])
    fooled = {d.method for d in found.warned if d.rank + d.sem >= d.chance}
    bar = go.Bar(
        x=frame["score"].tolist(),
        y=[f"{m} *" if m in fooled else m for m in frame["method"]],
        error_x={"array": frame["sem"].tolist(), "thickness": 1.2},
        orientation="h",
        marker_color="#2b7bba",
        customdata=frame["n"].tolist(),
        hovertemplate="%{y}: %{x:.3f}, %{customdata} texts<extra></extra>",
    )
    what, more = MEASURES[measure]
    beside = "* ranks a hidden cause no better than chance" if fooled else ""
    return go.Figure(bar).update_layout(
        title={"text": f"{measure}: {what}{'' if more else ' (lower is better)'}"},
        xaxis={"title": {"text": "mean and standard error over texts"}},
        yaxis={"title": {"text": beside}},
        height=140 + 22 * len(frame),
        margin={"l": 180},
    )
