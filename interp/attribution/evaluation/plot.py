"""Methods by how faithful they are, as a plotly figure for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.attribution.evaluation.result import MEASURES

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.attribution.evaluation.result import Faithfulness


def method_bars(found: Faithfulness, measure: str) -> go.Figure:
    """One bar per method, the best on top; whiskers are one standard error either way."""
    import plotly.graph_objects as go

    rows = [row for row in found.summary(measure) if row[3]][::-1]
    fooled = {d.method for d in found.warned if d.rank + d.sem >= d.chance}
    figure = go.Figure(
        go.Bar(
            x=[mean for _, mean, _, _ in rows],
            y=[f"{m} *" if m in fooled else m for m, _, _, _ in rows],
            error_x={"array": [sem for _, _, sem, _ in rows], "thickness": 1.2},
            orientation="h",
            marker_color="#2b7bba",
            customdata=[n for _, _, _, n in rows],
            hovertemplate="%{y}: %{x:.3f}, %{customdata} texts<extra></extra>",
        )
    )
    what, more = MEASURES[measure]
    figure.update_layout(
        title={"text": f"{measure}: {what}{'' if more else ' (lower is better)'}"},
        xaxis={"title": {"text": "mean and standard error over texts"}},
        yaxis={"title": {"text": "* ranks a hidden cause no better than chance" if fooled else ""}},
        height=140 + 22 * len(rows),
        margin={"l": 180},
    )
    return figure
