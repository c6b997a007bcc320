"""Plotly figures of curves: task and harmless damage by dose, and the training of a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from interp.draw.charts import filled_between
from interp.draw.colours import COLOURS, GREY, faded
from interp.draw.page import text

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.core.result_rows import ResultRows


def plot_doses(curve: ResultRows) -> go.Figure:
    """Plot both measures against the factor, with 95 % intervals and the random sets in grey."""
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    frame = curve.to_pandas()
    for k, (task, unit, higher) in enumerate(curve.tasks):
        rows = frame.loc[(frame["task"] == task).to_numpy()].sort_values(by="factor")
        x, null, low, high, score = (
            rows[c].to_numpy(float) for c in ("factor", "null", "low", "high", "score")
        )
        place: dict[str, Any] = {"row": k + 1, "col": 1}
        if not np.isnan(null).any():
            figure.add_scatter(
                x=x,
                y=null,
                mode="lines",
                name="random sets, mean",
                showlegend=k == 0,
                line={"color": GREY, "dash": "dot"},
                **place,
            )
        if not np.isnan(low).any():
            filled_between(
                figure,
                x,
                low,
                high,
                fillcolor=faded(COLOURS[k], 0.18),
                name="95 % interval",
                showlegend=False,
                **place,
            )
        figure.add_scatter(
            x=x,
            y=score,
            mode="lines+markers",
            name=text(task),
            line={"color": COLOURS[k], "width": 2.5},
            hovertemplate="x %{x}: %{y:.4g}<extra></extra>",
            **place,
        )
        title = text(f"{task} ({unit}), {'higher' if higher else 'lower'} is better")
        figure.update_yaxes(title={"text": title, "font": {"size": 12}}, **place)
    figure.add_vline(x=curve.unchanged, line={"color": "#000000", "dash": "dot", "width": 1})
    what = "factor of their output" if curve.how == "scale" else "coefficient of what is added"
    figure.update_xaxes(title={"text": what}, row=2, col=1)
    figure.update_layout(
        template="plotly_white",
        height=640,
        font={"size": 14},
        title=text(f"{curve.model[0]}: {', '.join(curve.steered)} steered ({curve.how})"),
        legend={"orientation": "h", "y": -0.15},
    )
    return figure


def training_figure(curve: ResultRows) -> go.Figure:
    """Plot explained variance and dead share along the steps."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, y in (("explained variance", curve.score), ("dead features", curve.dead_share)):
        figure.add_scatter(x=curve.step, y=y, name=name, mode="lines")
    return figure.update_layout(
        title="Training of a dictionary", xaxis_title="step", yaxis_title="share"
    )
