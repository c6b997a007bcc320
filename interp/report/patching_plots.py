"""Heat maps of layers and places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.draw.charts import map_of_places

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.core.result_rows import ResultRows


def patching_map_figure(found: ResultRows) -> go.Figure:
    """Draw the shares of the gap."""
    title = f"{found.task} in {found.model}: {found.site} {found.direction} at one position"
    return map_of_places(found.wide(), "share", title=title, unit="share")


def causal_traces_figure(found: ResultRows) -> go.Figure:
    """Draw the gains of probability."""
    layers = f"{found.window} layers of {found.site}" if found.window > 1 else found.site
    title = f"{found.model}: {layers} restored, {found.corrupt} corrupted"
    return map_of_places(found.wide(), "score", title=title, unit="probability")
