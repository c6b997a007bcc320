"""Heat map of a grid of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from interp.draw.page import text
from interp.draw.plot import palette

if TYPE_CHECKING:
    import plotly.graph_objects as go


def grid(
    values: Float[np.ndarray, "row column"],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    hover: Sequence[Sequence[str]],
    title: str,
    unit: str,
) -> go.Figure:
    """Draw numbers row by row, the first row at the bottom.

    Args:
        values: The numbers; NaN leaves a cell empty.
        rows: Names of the rows.
        columns: Names of the columns, which may repeat.
        hover: The text of each cell.
        title: The title above the figure.
        unit: The unit beside the colours.
    """
    import plotly.graph_objects as go

    figure = go.Figure(
        go.Heatmap(
            z=values.astype(np.float32),
            y=[text(x) for x in rows],
            text=[[text(x) for x in row] for row in hover],
            hovertemplate="%{text}<extra></extra>",
            colorscale=palette(bool(np.nanmin(values, initial=0.0) < 0)),
            colorbar={"title": {"text": text(unit)}},
        )
    )
    figure.update_layout(template="plotly_white", title=text(title))
    places = list(range(len(columns)))
    figure.update_xaxes(tickvals=places, ticktext=[text(x) for x in columns])
    return figure
