"""Notebook extension that stores every plotly figure with a static picture.

After `%load_ext interp.draw.notebook`, figures stay interactive where the front end can draw them,
and the SVG picture beside them is what `jupyter nbconvert`, a code host or a front end without
plotly shows. The script of plotly is not written into the notebook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.core.documents import parse_json
from interp.draw.figure import svg
from interp.draw.svg import standing

if TYPE_CHECKING:
    import plotly.graph_objects as go

_FIGURE = "plotly.graph_objs._figure", "Figure"  # module and name, so that plotly loads when used
_DRAWN = {"bar", "heatmap", "scatter"}  # kinds of traces that have a static picture


def load_ipython_extension(shell: Any) -> None:
    """Display plotly figures of this session with a static picture."""
    formatters = shell.display_formatter
    formatters.ipython_display_formatter.for_type_by_name(*_FIGURE, _display)


def unload_ipython_extension(shell: Any) -> None:
    """Display plotly figures as plotly does."""
    import plotly.graph_objects as go

    shell.display_formatter.ipython_display_formatter.pop(go.Figure, None)


def static_bundle(figure: go.Figure) -> dict[str, Any]:
    """Return a figure by MIME type: plotly's description, an SVG picture, and its title as text.

    The picture is left out if a trace is of a kind that `interp.draw.figure` does not draw.
    """
    shown: Any = figure
    bundle = {
        "application/vnd.plotly.v1+json": parse_json(shown.to_json()),
        "text/plain": f"Figure: {shown.layout.title.text or 'without a title'}",
    }
    if {trace.type for trace in shown.data} <= _DRAWN:
        bundle["image/svg+xml"] = standing(svg(figure), style=True)
    return bundle


def _display(figure: go.Figure) -> None:
    from IPython.display import display

    display(static_bundle(figure), raw=True)
