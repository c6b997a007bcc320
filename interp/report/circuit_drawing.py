"""Interactive picture of a circuit: layers from bottom to top, with a slider for its size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.nodes import layer_of, node_of
from interp.circuits.result import Circuit
from interp.draw.page import text
from interp.report.circuit_formats import HELPS, HURTS

if TYPE_CHECKING:
    import plotly.graph_objects as go

_STEPS = 8  # of the slider


def draw(circuit: Circuit, most: int) -> go.Figure:
    """Draw nodes by layer; each step of the slider shows the top edges (or nodes) by score."""
    import plotly.graph_objects as go

    total = len(circuit.edges) if circuit.edges else len(circuit.nodes)
    most = max(1, min(most, total))
    counts = sorted({max(1, round(most * (i + 1) / _STEPS)) for i in range(_STEPS)})
    figure, spans = go.Figure(), []
    for count in counts:
        first = len(figure.data)  # type: ignore[arg-type]
        for trace in _traces(circuit.top(count)):
            trace.visible = count == counts[-1]
            figure.add_trace(trace)
        spans.append((first, len(figure.data)))  # type: ignore[arg-type]
    size = len(figure.data)  # type: ignore[arg-type]
    what = "edges" if circuit.edges else "nodes"
    steps = [
        {
            "method": "update",
            "label": str(count),
            "args": [{"visible": [a <= i < b for i in range(size)]}],
        }
        for count, (a, b) in zip(counts, spans, strict=True)
    ]
    slider = {"active": len(counts) - 1, "currentvalue": {"prefix": f"{what}: "}, "steps": steps}
    title = text(f"{circuit.task} in {circuit.model}, by {circuit.method}")
    figure.update_layout(
        template="plotly_white", title=title, sliders=[slider], showlegend=False, height=640
    )
    figure.update_yaxes(title_text="layer", zeroline=False, dtick=1)
    figure.update_xaxes(visible=False)
    return figure


def node_places(circuit: Circuit) -> dict[str, tuple[float, float]]:
    """Return the position of each node: side by side in its layer, including the ends of edges."""
    ends = (node_of(end) for edge in circuit.edges for end in edge)
    rows: dict[float, list[str]] = {}
    for name in dict.fromkeys([*circuit.nodes, *ends]):
        rows.setdefault(layer_of(name, circuit.n_layers), []).append(name)
    return {
        name: (at - (len(row) - 1) / 2, height)
        for height, row in rows.items()
        for at, name in enumerate(row)
    }


def _traces(circuit: Circuit) -> list[Any]:
    import plotly.graph_objects as go

    where, out = node_places(circuit), []
    size = float(np.abs(circuit.edge_score).max(initial=0.0)) or 1.0
    for (a, b), score in zip(circuit.edges, circuit.edge_score, strict=True):
        x, y = zip(where[a], where[node_of(b)], strict=True)
        out.append(
            go.Scatter(
                x=x,
                y=y,
                mode="lines",
                hoverinfo="text",
                text=f"{a} to {b}: {score:.4g}",
                line={
                    "color": HELPS if score >= 0 else HURTS,
                    "width": 0.5 + 4 * abs(score) / size,
                    "dash": "solid" if score >= 0 else "dot",
                },
            )
        )
    known = dict(zip(circuit.nodes, circuit.largest, strict=True))
    size = float(np.abs(circuit.largest).max(initial=0.0)) or 1.0
    values = {n: circuit.said(i, text(circuit.unit)) for i, n in enumerate(circuit.nodes)}
    names = list(where)
    scores = [float(known.get(n, 0.0)) for n in names]
    out.append(
        go.Scatter(
            x=[where[n][0] for n in names],
            y=[where[n][1] for n in names],
            mode="markers+text",
            text=names,
            textposition="top center",
            hoverinfo="text",
            hovertext=[f"{n}: {values.get(n, 'no score')}" for n in names],
            marker={
                "size": [8 + 24 * abs(s) / size for s in scores],
                "color": [HELPS if s >= 0 else HURTS for s in scores],
                "symbol": ["circle" if s >= 0 else "diamond" for s in scores],
            },
        )
    )
    return out
