"""Scatter-plot matrix of importances: points are players, numbers are rank correlations."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.errors import UnknownName
from interp.core.rank_statistics import ranks
from interp.core.ties import ordered
from interp.draw.colours import COLOURS
from interp.draw.page import text

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.causal.comparison.result import Comparison

_LABELLED = 3  # number of players named beside their points in each plot


def scatter_matrix(found: Comparison, *, by: str = "score") -> go.Figure:
    """Plot pairs of importances: scatter plots below the diagonal, correlations above it.

    The players that rank first in either of the two are labelled. See `Comparison.plot`.

    Raises:
        UnknownName: `by` is not known.
    """
    from plotly.subplots import make_subplots

    if by not in ("score", "rank"):
        raise UnknownName("axis of a comparison", by, ("score", "rank"))
    scores = found.scores
    shown = scores if by == "score" else ranks(-scores)
    n = len(found.names)
    figure = make_subplots(rows=n, cols=n, horizontal_spacing=0.15 / n, vertical_spacing=0.15 / n)
    hover = "%{customdata}: %{x:.4g}, %{y:.4g}<extra></extra>"
    for row, column in np.ndindex(n, n):
        at: dict[str, Any] = {"row": row + 1, "col": column + 1}
        if row > column:
            named = _named(found, row, column)
            figure.add_scatter(
                x=shown[column],
                y=shown[row],
                mode="markers+text",
                customdata=found.players,
                text=[x if x in named else "" for x in found.players],
                textposition="top center",
                textfont={"size": 10},
                cliponaxis=False,
                marker={"color": COLOURS[0], "size": 6, "opacity": 0.75},
                hovertemplate=hover,
                showlegend=False,
                **at,
            )
            if column == 0:
                figure.update_yaxes(title_text=_short(found.names[row]), **at)
            if row == n - 1:
                figure.update_xaxes(title_text=_short(found.names[column]), **at)
            axis: dict[str, Any] = {"autorange": "reversed"} if by == "rank" else {}
        else:
            same = row == column
            stated = _name(found.names[row]) if same else _correlation(found, row, column)
            figure.add_scatter(
                x=[0.5],
                y=[0.5],
                mode="text",
                text=[stated],
                hoverinfo="skip",
                textfont={"size": 12 if same else 13},
                showlegend=False,
                **at,
            )
            axis = {"visible": False, "range": [0, 1]}
        figure.update_xaxes(**axis, **at)
        figure.update_yaxes(**axis, **at)
    title = text(f"{found.made['model']}: importances by {by}, one point per player")
    style = {"height": max(480, 200 * n), "font": {"size": 11}}
    return figure.update_layout(template="plotly_white", title=title, **style)


def _named(found: Comparison, row: int, column: int) -> set[str]:
    """Return the players that rank first in either of two."""
    first = [ordered(found.scores[i])[:_LABELLED] for i in (row, column)]
    return {found.players[i] for i in np.concatenate(first).tolist()}


def _short(name: str) -> str:
    """Return a name for an axis."""
    return text(textwrap.shorten(name.partition(":")[0], 30, placeholder="..."))


def _name(name: str) -> str:
    """Split a metric's label into several short lines, with the options after a colon."""
    parts = name.replace(":", ":\n").replace(",", ",\n").split("\n")
    lines = [line for part in parts for line in textwrap.wrap(part, 24)]
    head, *rest = [text(line) for line in lines]
    return "<br>".join([f"<b>{head}</b>", *rest])


def _correlation(found: Comparison, row: int, column: int) -> str:
    lines = []
    for what, sign in (("spearman", "Spearman"), ("kendall", "Kendall")):
        value = float(getattr(found, what)[row, column])
        low, high = getattr(found, f"{what}_interval")[row, column].tolist()
        if math.isnan(value):
            return "constant:<br>no correlation"
        within = "" if math.isnan(low) else f"<br>[{low:.2f}, {high:.2f}]"
        lines.append(f"{sign} {value:.2f}{within}")
    return "<br>".join(lines)
