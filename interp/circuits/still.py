"""A circuit as an SVG that needs no script: the interactive graph's layers, read from below."""

from __future__ import annotations

from html import escape

import numpy as np

from interp.circuits.drawing import node_places
from interp.circuits.forms import colour
from interp.circuits.nodes import layer_of, node_of
from interp.circuits.result import Circuit

_WIDE, _HIGH = 58, 22  # of a node
_COLUMN, _ROW = 72, 84  # from node to node at least, from layer to layer
_NARROW = 600  # the caption must fit, and a few nodes are better told apart with room
_LEFT, _TOP, _BOTTOM = 76, 30, 56
_ENDS = {"q": -0.3, "k": 0.0, "v": 0.3}  # where on a head's lower side its inputs are
LABELLED = 60  # edges; of more the letters of inputs would hide one another


def still(circuit: Circuit, most: int) -> str:
    """One `<svg>` with at most so many edges (or nodes, where there are no edges), and a caption.

    Blue and whole lines help, orange and broken ones hurt; width and depth are the size of a score.
    """
    shown = circuit.top(max(1, most))
    where = node_places(shown)
    rows = sorted({y for _, y in where.values()})
    across = [x for x, _ in where.values()]
    columns = max(across) - min(across) + 1
    step = max(_COLUMN, _NARROW / columns)
    width = _LEFT + round(columns * step) + 20
    height = _TOP + (len(rows) - 1) * _ROW + _HIGH + _BOTTOM
    at = {
        name: (
            _LEFT + (x - min(across) + 0.5) * step,
            _TOP + (len(rows) - 1 - rows.index(y)) * _ROW + _HIGH / 2,
        )
        for name, (x, y) in where.items()
    }
    told = caption(circuit, shown), weight(shown)
    name = escape("; ".join(told))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{name}" font-family="sans-serif" '
        'font-size="12">',
        f"<title>{escape(f'{circuit.task} in {circuit.model}, by {circuit.method}')}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *_rows(shown, at, rows, width),
        *_edges(shown, at),
        *_nodes(shown, at),
        f'<text x="8" y="{height - 28}" fill="#444444">{escape(told[0])}</text>',
        f'<text x="8" y="{height - 12}" fill="#444444">{escape(told[1])}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def caption(circuit: Circuit, shown: Circuit) -> str:
    """The share of the circuit that is shown, and the meaning of lines and colours."""
    some, every, what = (
        (len(shown.edges), len(circuit.edges), "edges")
        if circuit.edges
        else (len(shown), len(circuit), "nodes")
    )
    return (
        f"{some} of {every} {what}, the largest scores in {circuit.unit}; blue helps, orange and"
        " broken hurts"
    )


def weight(shown: Circuit) -> str:
    """The scale of a picture: what the deepest colour and the widest line stand for."""
    sizes = np.abs(shown.score)
    node = float(sizes[~np.isnan(sizes)].max(initial=0.0))  # what was never patched has no score
    told = f"depth and width are the size of a score: the deepest colour is {node:.3g}"
    if shown.edges:
        told += f", the widest line {float(np.abs(shown.edge_score).max(initial=0.0)):.3g}"
    return told


def _rows(
    circuit: Circuit, at: dict[str, tuple[float, float]], rows: list[float], width: int
) -> list[str]:
    names = {y: name for name, (_, y) in at.items()}
    out = []
    for y, name in sorted(names.items()):
        layer = layer_of(name, circuit.n_layers)
        said = f"layer {layer:.0f}" if name.startswith("L") else name
        out.append(
            f'<line x1="{_LEFT - 6}" x2="{width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#eeeeee"/>'
            f'<text x="8" y="{y + 4:.1f}" fill="#666666">{escape(said)}</text>'
        )
    assert len(names) == len(rows)
    return out


def _edges(circuit: Circuit, at: dict[str, tuple[float, float]]) -> list[str]:
    size = float(np.abs(circuit.edge_score).max(initial=0.0)) or 1.0
    lettered = len(circuit.edges) <= LABELLED
    width = 3.4 * min(1.0, LABELLED / max(1, len(circuit.edges)))  # many are told apart if thin
    out, letters = [], []
    for i in np.argsort(np.abs(circuit.edge_score), kind="stable"):  # the largest on top
        (a, b), score = circuit.edges[i], float(circuit.edge_score[i])
        part = b.partition(".")[2]
        x0, y0 = at[a][0], at[a][1] - _HIGH / 2
        x1 = at[node_of(b)][0] + _WIDE * _ENDS.get(part, 0.0)
        y1 = at[node_of(b)][1] + _HIGH / 2
        bend = (y0 - y1) / 2
        broken = "" if score >= 0 else ' stroke-dasharray="5 3"'
        out.append(
            f'<path d="M{x0:.1f} {y0:.1f}C{x0:.1f} {y0 - bend:.1f} {x1:.1f} {y1 + bend:.1f}'
            f' {x1:.1f} {y1:.1f}" fill="none" stroke="{colour(score)}" stroke-opacity="0.75"'
            f' stroke-width="{0.6 + width * abs(score) / size:.2f}"{broken}>'
            f"<title>{escape(f'{a} to {b}: {score:.4g} {circuit.unit}')}</title></path>"
        )
        if part and lettered:
            letters.append(
                f'<text x="{x1:.1f}" y="{y1 + 12:.1f}" font-size="10" text-anchor="middle"'
                f' fill="#222222" stroke="#ffffff" stroke-width="3" paint-order="stroke">'
                f"{escape(part)}</text>"
            )
    return out + letters


def _nodes(circuit: Circuit, at: dict[str, tuple[float, float]]) -> list[str]:
    known = dict(zip(circuit.nodes, circuit.largest.tolist(), strict=True))
    said = {n: circuit.said(i, circuit.unit) for i, n in enumerate(circuit.nodes)}
    size = max((abs(s) for s in known.values()), default=0.0) or 1.0
    role = {name: r for r, names in circuit.roles.items() for name in names}
    out = []
    for name, (x, y) in at.items():
        score = known.get(name, 0.0)
        broken = "" if score >= 0 else ' stroke-dasharray="4 2"'
        told = f"{name}: {said[name]}" if name in known else name
        told += f", {role[name]}" if name in role else ""
        out.append(
            f'<g><rect x="{x - _WIDE / 2:.1f}" y="{y - _HIGH / 2:.1f}" width="{_WIDE}"'
            f' height="{_HIGH}" rx="4" fill="#ffffff"/>'
            f'<rect x="{x - _WIDE / 2:.1f}" y="{y - _HIGH / 2:.1f}" width="{_WIDE}"'
            f' height="{_HIGH}" rx="4" fill="{colour(score)}" stroke="{colour(score)}"'
            f' fill-opacity="{0.04 + 0.4 * abs(score) / size:.2f}"{broken}/>'
            f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" fill="#111111">'
            f"{escape(name)}</text><title>{escape(told)}</title></g>"
        )
    return out
