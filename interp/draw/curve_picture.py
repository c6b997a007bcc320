"""Figure of faithfulness over sizes: the first heads or edges alone, beside random orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from interp.draw.colours import BAND, COLOURS, GREY
from interp.draw.page import text

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

_LEAST, _MOST = -1.0, 2.0  # curves are cut off beyond, since harmful heads can have large effects


def curve(rows: pd.DataFrame, what: str, title: str = "") -> go.Figure:
    """Draw the columns `faithfulness` and `random` with its band, on a logarithmic scale.

    Args:
        rows: The rows of an evaluation.
        what: The column of sizes, `heads` or `edges`.
        title: The title above the figure.
    """
    import plotly.graph_objects as go

    size, figure = rows[what].to_numpy(), go.Figure()
    if "random_low" in rows:
        ends = np.r_[rows["random_high"], rows["random_low"].to_numpy()[::-1]]
        figure.add_scatter(
            x=np.r_[size, size[::-1]], y=_cut(ends), fill="toself", fillcolor=BAND,
            line={"width": 0}, name="random orders, middle 95 %", hoverinfo="skip",
        )  # fmt: skip
    for column, colour, name in (
        ("faithfulness", COLOURS[0], f"the first {what}"), ("random", GREY, "in random order"),
    ):  # fmt: skip
        figure.add_scatter(x=size, y=_cut(rows[column]), mode="lines+markers", name=name,
                           line={"color": colour})  # fmt: skip
    for level in (0, 1):
        figure.add_hline(y=level, line={"color": GREY, "dash": "dot", "width": 1})
    both = rows[["faithfulness", "random"]].to_numpy()
    cut = f"; cut off at {_LEAST:g} and {_MOST:g}" if (both != _cut(both)).any() else ""
    told = f"{what} that stay intact, others {rows['ablation'].iloc[0]} (doubling scale){cut}"
    figure.update_layout(template="plotly_white", title=text(title), height=360)
    labels = [f"{n:.0f}" for n in size]
    figure.update_xaxes(title_text=told, type="log", tickvals=size, ticktext=labels)
    figure.update_yaxes(title_text="faithfulness")
    return figure


def _cut(values: object) -> np.ndarray:
    return np.clip(np.asarray(values, dtype=float), _LEAST, _MOST)
