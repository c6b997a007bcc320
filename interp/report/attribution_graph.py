"""Pictures of an attribution graph: tokens from left to right, layers from bottom to top."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from interp.report.circuit_formats import HELPS, HURTS

if TYPE_CHECKING:
    from pathlib import Path

    import plotly.graph_objects as go

    from interp.circuits.why.graph_edges import GraphNode
    from interp.circuits.why.tracer_json import PrunedGraph

_SHAPES = {
    "embedding": "square",
    "head": "circle",
    "mlp": "diamond",
    "feature": "hexagon",
    "error": "x",
    "logit": "star",
}
_WIDE, _HIGH, _MARGIN = 90, 90, 70  # pixels of the static picture


def graph_places(graph: PrunedGraph) -> dict[str, tuple[float, float]]:
    """Return the place of each node: its token, and its layer with heads below the MLP."""
    cells: dict[tuple[int, float], list[str]] = {}
    for x in graph.nodes:
        height = -1.0 if x.kind == "embedding" else float(graph.n_layers)
        if x.kind not in ("embedding", "logit"):
            height = x.layer + {"feature": -0.3, "head": 0.0, "mlp": 0.45, "error": 0.25}[x.kind]
        cells.setdefault((x.position, height), []).append(x.name)
    return {
        name: (position + 0.8 * (i + 1) / (len(names) + 1) - 0.4, height)
        for (position, height), names in cells.items()
        for i, name in enumerate(names)
    }


def _first(graph: PrunedGraph, k: int) -> PrunedGraph:
    return graph.top(k) if len(graph) > k else graph


def _title(graph: PrunedGraph, shown: PrunedGraph) -> str:
    if len(shown) < len(graph):
        return (
            f"{graph.model}: the first {len(shown)} of {len(graph)} edges by influence; the graph "
            "is too large to draw whole"
        )
    return f"{graph.model}: {len(graph)} edges that carry {graph.shares[1]:.0%} of the influence"


def _ends(shown: PrunedGraph) -> list[GraphNode]:
    used = {*shown.sources, *shown.targets}
    return [x for x in shown.nodes if x.name in used or x.kind in ("embedding", "logit")]


def drawn_figure(graph: PrunedGraph, k: int) -> go.Figure:
    """Return an interactive figure of the first k edges."""
    import plotly.graph_objects as go

    shown, places = _first(graph, k), graph_places(graph)
    figure = go.Figure()
    most = max((float(x) for x in shown.influences), default=1.0) or 1.0
    for source, target, weight, influence in zip(
        shown.sources, shown.targets, shown.weights.tolist(), shown.influences.tolist(), strict=True
    ):
        (x0, y0), (x1, y1) = places[source], places[target]
        figure.add_scatter(
            x=[x0, x1],
            y=[y0, y1],
            mode="lines",
            hoverinfo="text",
            text=f"{source} to {target}: {weight:+.3g}",
            showlegend=False,
            line={
                "color": HELPS if weight >= 0 else HURTS,
                "width": 0.5 + 4 * influence / most,
                "dash": "solid" if weight >= 0 else "dot",
            },
        )
    for kind, symbol in _SHAPES.items():
        some = [x for x in _ends(shown) if x.kind == kind]
        if some:
            figure.add_scatter(
                x=[places[x.name][0] for x in some],
                y=[places[x.name][1] for x in some],
                mode="markers",
                name=kind,
                hoverinfo="text",
                hovertext=[escape(f"{graph.described(x)}: {x.activation:.3g}") for x in some],
                marker={"symbol": symbol, "size": 10, "color": "#24425c"},
            )
    labels = [escape(t) for t in graph.tokens]
    figure.update_layout(template="plotly_white", title=_title(graph, shown), height=640)
    figure.update_xaxes(tickvals=list(range(len(labels))), ticktext=labels, title_text="token")
    ticks = list(range(-1, graph.n_layers + 1))
    names = ["token", *(str(i) for i in range(graph.n_layers)), "logit"]
    figure.update_yaxes(tickvals=ticks, ticktext=names, title_text="layer", zeroline=False)
    return figure


def save_graph(graph: PrunedGraph, path: Path) -> None:
    """Write the static picture in the format of the suffix."""
    from interp.circuits.why.graph_result import DRAWN_EDGES
    from interp.report.paper import save_figure

    save_figure(drawn_svg(graph, DRAWN_EDGES), path)


def drawn_svg(graph: PrunedGraph, k: int) -> str:
    """Return a static picture of the first k edges."""
    shown, places = _first(graph, k), graph_places(graph)
    width = 2 * _MARGIN + _WIDE * len(graph.tokens)
    height = 2 * _MARGIN + _HIGH * (graph.n_layers + 1)

    def at(name: str) -> tuple[float, float]:
        x, y = places[name]
        return _MARGIN + _WIDE * (x + 0.5), height - _MARGIN - _HIGH * (y + 1)

    most = max((float(x) for x in shown.influences), default=1.0) or 1.0
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="13">{escape(_title(graph, shown))}</text>',
    ]
    for source, target, weight, influence in zip(
        shown.sources, shown.targets, shown.weights.tolist(), shown.influences.tolist(), strict=True
    ):
        (x0, y0), (x1, y1) = at(source), at(target)
        dash = "" if weight >= 0 else ' stroke-dasharray="4 3"'
        lines.append(
            f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke-opacity="0.7" '
            f'stroke="{HELPS if weight >= 0 else HURTS}" '
            f'stroke-width="{0.5 + 3.5 * influence / most:.2f}"{dash}>'
            f"<title>{escape(f'{source} to {target}: {weight:+.3g}')}</title></line>"
        )
    for node in _ends(shown):
        x, y = at(node.name)
        text = graph.texts[node.number] if node.kind == "logit" else node.name.partition("@")[0]
        text = graph.tokens[node.position] if node.kind == "embedding" else text
        down = 16 if node.kind == "embedding" else -7
        lines.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#24425c">'
            f"<title>{escape(graph.described(node))}</title></circle>"
            f'<text x="{x:.1f}" y="{y + down:.1f}" text-anchor="middle">{escape(text)}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"
