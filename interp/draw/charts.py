"""Plotly figures of results: bars with intervals, grids of numbers, curves over a band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.draw.colours import BAND, COLOURS, GREY, palette
from interp.draw.page import text

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

_LEAST, _MOST = -1.0, 2.0  # curves are cut off beyond, since harmful heads can have large effects


def bars(rows: pd.DataFrame, names: Sequence[str], *, title: str, unit: str) -> go.Figure:
    """Draw one bar per row with its confidence interval, where every row has one."""
    import plotly.graph_objects as go

    error: dict[str, Any] = {"visible": False}
    if bool(rows["low"].notna().to_numpy().all()):
        error = {"type": "data", "symmetric": False, "array": rows["high"] - rows["score"]}
        error |= {"arrayminus": rows["score"] - rows["low"]}
    named = [text(name) for name in names]
    bar = go.Bar(x=named, y=rows["score"], error_y=error, marker_color=COLOURS[0])
    axis = {"title": {"text": text(unit)}}
    return go.Figure(bar, {"template": "plotly_white", "title": text(title), "yaxis": axis})


def grid(
    values: Float[np.ndarray, "row column"],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    hover: Sequence[Sequence[str]],
    title: str,
    unit: str,
) -> go.Figure:
    """Draw numbers row by row, the first row at the bottom."""
    import plotly.graph_objects as go

    cells = go.Heatmap(
        z=values.astype(np.float32),
        y=[text(x) for x in rows],
        text=[[text(x) for x in row] for row in hover],
        hovertemplate="%{text}<extra></extra>",
        colorscale=palette(bool(np.nanmin(values, initial=0.0) < 0)),
        colorbar={"title": {"text": text(unit)}},
    )
    axis = {"tickvals": [*range(len(columns))], "ticktext": [text(x) for x in columns]}
    return go.Figure(cells, {"template": "plotly_white", "title": text(title), "xaxis": axis})


def signed_map(table: pd.DataFrame, *, title: str, unit: str) -> go.Figure:
    """Draw a table of numbers as a heat map, on colours that reach as far below 0 as above."""
    import plotly.graph_objects as go

    z = table.to_numpy()
    size = float(np.nanmax(np.abs(z), initial=1e-9))
    cells = go.Heatmap(
        z=z,
        x=[str(c) for c in table.columns],
        y=[str(i) for i in table.index],
        zmin=-size,
        zmax=size,
        colorscale=[[0, "#6b2a00"], [0.5, "#f1f5f8"], [1, "#06264f"]],
        colorbar={"title": unit},
    )
    return go.Figure(cells, {"template": "plotly_white", "title": title})


def map_of_places(rows: pd.DataFrame, value: str, *, title: str, unit: str) -> go.Figure:
    """Draw one column of rows with a layer and a place as a heat map, layer by layer."""
    table = rows.pivot_table(index="layer", columns="place", values=value, sort=False)
    figure = signed_map(table, title=title, unit=unit)
    axes = {"xaxis": {"type": "category"}, "yaxis": {"type": "category", "title": "layer"}}
    return figure.update_layout(axes)


def curve(rows: pd.DataFrame, what: str, title: str = "") -> go.Figure:
    """Draw the columns `faithfulness` and `random` with its band, on a logarithmic scale."""
    import plotly.graph_objects as go

    size, figure = rows[what].to_numpy(), go.Figure()
    if "random_low" in rows:
        ends = _cut(rows["random_low"]), _cut(rows["random_high"])
        filled_between(figure, size, *ends, fillcolor=BAND, name="random orders, middle 95 %")
    for column, colour, name in (
        ("faithfulness", COLOURS[0], f"the first {what}"),
        ("random", GREY, "in random order"),
    ):
        figure.add_scatter(
            x=size, y=_cut(rows[column]), mode="lines+markers", name=name, line={"color": colour}
        )
    for level in (0, 1):
        figure.add_hline(y=level, line={"color": GREY, "dash": "dot", "width": 1})
    both = rows[["faithfulness", "random"]].to_numpy()
    cut = f"; cut off at {_LEAST:g} and {_MOST:g}" if (both != _cut(both)).any() else ""
    sentence = f"{what} that stay intact, others {rows['ablation'].iloc[0]} (doubling scale){cut}"
    figure.update_layout(template="plotly_white", title=text(title), height=360)
    labels = [f"{n:.0f}" for n in size]
    figure.update_xaxes(title_text=sentence, type="log", tickvals=size, ticktext=labels)
    figure.update_yaxes(title_text="faithfulness")
    return figure


def _cut(values: object) -> np.ndarray:
    return np.clip(np.asarray(values, dtype=float), _LEAST, _MOST)


def filled_between(figure: go.Figure, x: np.ndarray, low: Any, high: Any, **style: Any) -> None:
    """Fill the area between two curves, without hover texts."""
    ends = np.r_[low, np.asarray(high)[::-1]]
    figure.add_scatter(
        x=np.r_[x, x[::-1]],
        y=ends,
        fill="toself",
        mode="lines",
        hoverinfo="skip",
        line={"width": 0},
        **style,
    )
