"""Static SVG picture of a circuit, without scripts: layers from bottom to top."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from interp.circuits.nodes import layer_of, node_of
from interp.circuits.result import Circuit
from interp.core.ties import ordered
from interp.draw.svg import element, standing, svg_picture
from interp.report.circuit_drawing import node_places
from interp.report.circuit_formats import colour

_WIDE, _HIGH = 58, 22  # of a node
_COLUMN, _ROW = 72, 84  # from node to node at least, from layer to layer
_NARROW = 600  # room for the caption, and for a few nodes to be spread out
_LEFT, _TOP, _BOTTOM = 76, 30, 56
_ENDS = {"q": -0.3, "k": 0.0, "v": 0.3}  # positions of a head's inputs along its lower side
LABELLED = 60  # most edges with letters for inputs, which would overlap otherwise


def still(circuit: Circuit, most: int) -> str:
    """Draw an `<svg>` with at most `most` edges (or nodes, if there are no edges), and a caption.

    Blue solid lines help, orange dashed lines hurt; width and depth show the absolute score.
    """
    shown = circuit.top(max(1, most))
    where = node_places(shown)
    rows = sorted({y for _, y in where.values()})
    across = [x for x, _ in where.values()]
    columns = max(across) - min(across) + 1
    step = max(_COLUMN, _NARROW / columns)
    width = _LEFT + round(columns * step) + 20
    height = _TOP + (len(rows) - 1) * _ROW + _HIGH + _BOTTOM
    level = {y: _TOP + i * _ROW + _HIGH / 2 for i, y in enumerate(reversed(rows))}
    left = _LEFT + (0.5 - min(across)) * step
    at = {name: (left + x * step, level[y]) for name, (x, y) in where.items()}
    pieces = caption(circuit, shown), weight(shown)
    parts = [
        element("title", f"{circuit.task} in {circuit.model}, by {circuit.method}"),
        *_rows(shown, at, width),
        *_edges(shown, at),
        *_nodes(shown, at, _ranks(shown)),
        *(element("text", line, x=8, y=height - 28 + 16 * i) for i, line in enumerate(pieces)),
    ]
    return standing(
        svg_picture(
            width,
            height,
            *parts,
            font_family="sans-serif",
            font_size=12,
            role="img",
            aria_label="; ".join(pieces),
            data_what="edges" if shown.edges else "nodes",
            data_ranks=len(shown.edges) or len(shown.nodes),
        )
    )


def _ranks(shown: Circuit) -> dict[str, int]:
    """Return the order in which a slider shows the nodes, from 0."""
    if not shown.edges:
        return {name: i for i, name in enumerate(shown.ranking)}
    ranks: dict[str, int] = {}
    for rank, i in enumerate(_by_size(shown)):
        a, b = shown.edges[i]
        ranks.setdefault(a, rank)
        ranks.setdefault(node_of(b), rank)
    return ranks


def _by_size(shown: Circuit) -> list[int]:
    """Return the numbers of the edges in descending order of absolute score."""
    return ordered(np.abs(shown.edge_score))


def caption(circuit: Circuit, shown: Circuit) -> str:
    """Describe the share of the circuit that is shown, and the meaning of lines and colours."""
    what = "edges" if circuit.edges else "nodes"
    some, every = len(getattr(shown, what)), len(getattr(circuit, what))
    return (
        f"{some} of {every} {what}, the largest scores in {circuit.unit}; blue helps, orange and"
        " broken hurts"
    )


def weight(shown: Circuit) -> str:
    """Describe the scale of a picture: the scores of the deepest colour and the widest line."""
    # nodes that were never patched have no score
    node = float(np.nanmax(np.abs(shown.score), initial=0.0))
    text = f"depth and width are the size of a score: the deepest colour is {node:.3g}"
    if shown.edges:
        text += f", the widest line {float(np.abs(shown.edge_score).max(initial=0.0)):.3g}"
    return text


def _rows(circuit: Circuit, at: dict[str, tuple[float, float]], width: int) -> list[Markup]:
    names = {y: name for name, (_, y) in at.items()}
    out = []
    for y, name in sorted(names.items()):
        label = f"layer {layer_of(name, circuit.n_layers):.0f}" if name.startswith("L") else name
        out.append(element("line", x1=_LEFT - 6, x2=width, y1=y, y2=y, stroke="#eeeeee"))
        out.append(element("text", label, x=8, y=y + 4, fill="#666666"))
    return out


def _edges(circuit: Circuit, at: dict[str, tuple[float, float]]) -> list[Markup]:
    size = float(np.abs(circuit.edge_score).max(initial=0.0)) or 1.0
    lettered = len(circuit.edges) <= LABELLED
    # many edges are only distinguishable if thin
    width = 3.4 * min(1.0, LABELLED / max(1, len(circuit.edges)))
    out, letters = [], []
    for rank, i in reversed([*enumerate(_by_size(circuit))]):  # the largest on top
        (a, b), score = circuit.edges[i], float(circuit.edge_score[i])
        part = b.partition(".")[2]
        x0, y0 = at[a][0], at[a][1] - _HIGH / 2
        x1 = at[node_of(b)][0] + _WIDE * _ENDS.get(part, 0.0)
        y1 = at[node_of(b)][1] + _HIGH / 2
        bend = (y0 - y1) / 2
        way = f"M{x0:.1f} {y0:.1f}C{x0:.1f} {y0 - bend:.1f}"
        way += f" {x1:.1f} {y1 + bend:.1f} {x1:.1f} {y1:.1f}"
        out.append(
            element(
                "path",
                element("title", f"{a} to {b}: {score:.4g} {circuit.unit}"),
                d=way,
                fill="none",
                stroke=colour(score),
                stroke_opacity=0.75,
                stroke_width=0.6 + width * abs(score) / size,
                stroke_dasharray=None if score >= 0 else "5 3",
                data_rank=rank,
            )
        )
        if part and lettered:
            letters.append(
                element(
                    "text",
                    part,
                    x=x1,
                    y=y1 + 12,
                    font_size=10,
                    text_anchor="middle",
                    stroke="#ffffff",
                    stroke_width=3,
                    paint_order="stroke",
                    data_rank=rank,
                )
            )
    return out + letters


def _nodes(
    circuit: Circuit, at: dict[str, tuple[float, float]], ranks: dict[str, int]
) -> list[Markup]:
    known = dict(zip(circuit.nodes, circuit.largest.tolist(), strict=True))
    texts = {n: circuit.said(i, circuit.unit) for i, n in enumerate(circuit.nodes)}
    size = max((abs(s) for s in known.values()), default=0.0) or 1.0
    role = {name: r for r, names in circuit.roles.items() for name in names}
    out = []
    for name, (x, y) in at.items():
        score = known.get(name, 0.0)
        text = f"{name}: {texts[name]}" if name in known else name
        text += f", {role[name]}" if name in role else ""
        box = {"x": x - _WIDE / 2, "y": y - _HIGH / 2, "width": _WIDE, "height": _HIGH, "rx": 4}
        out.append(
            element(
                "g",
                element("rect", **box, fill="#ffffff"),
                element(
                    "rect",
                    **box,
                    fill=colour(score),
                    stroke=colour(score),
                    fill_opacity=0.04 + 0.4 * abs(score) / size,
                    stroke_dasharray=None if score >= 0 else "4 2",
                ),
                element("text", name, x=x, y=y + 4, text_anchor="middle"),
                element("title", text),
                data_rank=ranks.get(name, 0),
            )
        )
    return out
