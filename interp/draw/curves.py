"""Curves of scores over training steps, one line per head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.draw.charts import filled_between
from interp.draw.colours import COLOURS, DASHES, GREY, faded
from interp.draw.page import text

if TYPE_CHECKING:
    import plotly.graph_objects as go


def training_curves(found: Any, metric: str, named: int) -> go.Figure:
    """Draw the scores of one metric against the training step."""
    import plotly.graph_objects as go

    frame = found[metric].to_pandas()
    groups = list(frame.groupby(["stack", "layer", "head"], sort=False))
    span = {key: float(part["score"].max() - part["score"].min()) for key, part in groups}
    first = sorted(span, key=lambda key: -span[key])[:named]
    figure = go.Figure()
    for key, part in groups:
        if key not in first:
            line = {"color": GREY, "width": 0.7}
            figure.add_scatter(
                x=part["step"],
                y=part["score"],
                mode="lines",
                line=line,
                showlegend=False,
                name=_head(key, frame),
                hoverinfo="skip",
            )
    parts = dict(groups)
    for at, key in enumerate(first):
        part, name = parts[key], _head(key, frame)
        colour = COLOURS[at % len(COLOURS)]
        if bool(part["low"].notna().all()):
            ends = part["low"].to_numpy(), part["high"].to_numpy()
            fill = {"fillcolor": faded(colour, 0.15), "showlegend": False, "name": name}
            filled_between(figure, part["step"].to_numpy(), *ends, **fill)
        line = {"color": colour, "width": 2, "dash": DASHES[at % len(DASHES)]}
        figure.add_scatter(
            x=part["step"], y=part["score"], mode="lines+markers", line=line, name=name
        )
    unit = str(frame["unit"].iloc[0]) if len(frame) else ""
    figure.update_layout(template="plotly_white", title=text(f"{metric} over training"), height=420)
    figure.update_xaxes(title_text="training step")
    return figure.update_yaxes(title_text=text(unit))


def _head(key: Any, frame: Any) -> str:
    stack, layer, head = key
    name = f"L{layer}H{head}"
    return text(f"{stack} {name}") if frame["stack"].nunique() > 1 else name
