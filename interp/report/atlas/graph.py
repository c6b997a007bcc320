"""A circuit as a picture of layers, from the input at the bottom to the output on top."""

from __future__ import annotations

import re
from collections.abc import Mapping

from markupsafe import Markup

from interp.core.tokens import shown
from interp.draw.svg import element, svg_picture
from interp.report.atlas.document import Graph, Node, Pair
from interp.report.atlas.signs import Sign

_WIDE, _HIGH = 76, 24  # of a node
_BADGE = 18  # pixels of the letter of a head's role
_ACROSS, _DOWN = 106, 78  # from node to node, from layer to layer
_LEFT, _TOP = 66, 14
_FEW = 16  # nodes of a circuit without a set
_EDGES = 80  # of a circuit without a set
_ROOM = 9  # nodes in one row


def graph_figure(
    figure: Graph, part: str, title: str, signs: Mapping[str, Sign] | None = None
) -> Markup:
    """Draw the smallest set of a circuit, or its first nodes; width is the score."""
    ids = shown_nodes(figure)
    edges = [e for e in figure["edges"] if _owner(e[0]) in ids and _owner(e[1]) in ids]
    edges = edges if figure["chosen"] else edges[:_EDGES]
    nodes = [n for n in figure["nodes"] if n["id"] in ids]
    rows = _rows(nodes)
    width = _LEFT + max(map(len, rows.values()), default=1) * _ACROSS + 8
    at = {}
    for depth, (_, row) in enumerate(sorted(rows.items(), reverse=True)):
        start = _LEFT + (width - _LEFT - len(row) * _ACROSS) / 2
        for i, node in enumerate(row):
            at[node["id"]] = (start + (i + 0.5) * _ACROSS, _TOP + depth * _DOWN + _HIGH / 2)
    height = _TOP + len(rows) * _DOWN - (_DOWN - _HIGH) + 26
    named = [
        element("text", _row_name(key), x=4, y=_TOP + depth * _DOWN + _HIGH / 2 + 4, class_="soft")
        for depth, (key, _) in enumerate(sorted(rows.items(), reverse=True))
    ]
    what = "smallest set" if figure["chosen"] else f"first {len(nodes)} nodes"
    text = ", ".join(figure["chosen"] or [node["id"] for node in nodes[:12]])
    return svg_picture(
        width,
        height,
        *named,
        *_edges(edges, at, figure["unit"]),
        *_nodes(nodes, at, figure, signs or {}),
        class_="figure graph",
        role="img",
        aria_label=f"{title}, {what}: {text}",
        data_graph=part,
    )


def shown_nodes(figure: Graph) -> set[str]:
    """Return the nodes of the smallest set with the ends of the circuit."""
    first = figure["chosen"] or [node["id"] for node in figure["nodes"][:_FEW]]
    ends = {n["id"] for n in figure["nodes"] if n["id"] in ("embed", "logits")}
    return {*first, *ends}


def _owner(end: str) -> str:
    """Return the node of an end such as `L5H1.q`."""
    return end.partition(".")[0]


def level(node: str) -> float:
    """Return the height of a node: heads, then the layer's MLP; embeddings below, logits above."""
    match = re.match(r"(L|mlp)(\d+)", node)
    if match:
        return int(match[2]) + (0.5 if match[1] == "mlp" else 0.0)
    return 1e6 if node == "logits" else -1.0


def _rows(nodes: list[Node]) -> dict[tuple[float, int], list[Node]]:
    """Return the nodes by height; a long row is broken."""
    rows: dict[float, list[Node]] = {}
    for node in sorted(nodes, key=lambda n: (level(n["id"]), n["head"] or 0)):
        rows.setdefault(level(node["id"]), []).append(node)
    return {
        (height, -start): row[start : start + _ROOM]
        for height, row in rows.items()
        for start in range(0, len(row), _ROOM)
    }


def _row_name(key: tuple[float, int]) -> str:
    height, start = key
    if start:
        return ""
    return "" if height in (-1.0, 1e6) else f"layer {int(height)}"


def _edges(
    edges: list[tuple[str, str, float | None]], at: dict[str, tuple[float, float]], unit: str
) -> list[Markup]:
    size = max((abs(s) for *_, s in edges if s is not None), default=0.0) or 1.0
    out = []
    for a, b, score in reversed(edges):
        (x0, y0), (x1, y1) = at[_owner(a)], at[_owner(b)]
        x1 += {"q": -24, "v": 24}.get(b.partition(".")[2], 0)
        y0, y1 = y0 - _HIGH / 2, y1 + _HIGH / 2
        bend = (y0 - y1) / 2
        width = 1.0 if score is None else 0.7 + 4.3 * abs(score) / size
        label = f"{a} to {b}" + ("" if score is None else f": {score:.4g} {unit}")
        kind = "edge minus" if (score or 0) < 0 else "edge"
        out.append(
            element(
                "path",
                element("title", label),
                class_=kind,
                d=f"M{x0:.0f} {y0:.0f}C{x0:.0f} {y0 - bend:.0f} {x1:.0f} {y1 + bend:.0f} "
                f"{x1:.0f} {y1:.0f}",
                stroke_width=round(width, 1),
                data_from=_owner(a),
                data_to=_owner(b),
            )
        )
    return out


def _nodes(
    nodes: list[Node], at: dict[str, tuple[float, float]], figure: Graph, signs: Mapping[str, Sign]
) -> list[Markup]:
    out = []
    for node in nodes:
        x, y = at[node["id"]]
        sign = signs.get(node["id"])
        score = "" if node["score"] is None else f": {node['score']:.4g} {figure['unit']}"
        reads = _reads(node, figure.get("pair"))
        lines = [f"{node['id']}{score}", node["role"], sign.name if sign else "", reads]
        box = {"x": x - _WIDE / 2, "y": y - _HIGH / 2, "width": _WIDE, "height": _HIGH, "rx": 5}
        kind = "node minus" if (node["score"] or 0) < 0 else "node"
        lettered = sign is not None and sign.letter != ""
        left = x + (_BADGE / 2 if lettered else 0)
        parts = [
            element("title", ", ".join(filter(None, lines))),
            element("rect", **box),
            element("text", node["id"], x=left, y=y + 4, text_anchor="middle"),
        ]
        if lettered and sign is not None:
            parts += [
                element(
                    "rect",
                    class_=f"sign {sign.class_}",
                    x=x - _WIDE / 2 + 3,
                    y=y - _BADGE / 2,
                    width=_BADGE,
                    height=_BADGE,
                    rx=3,
                ),
                element(
                    "text",
                    sign.letter,
                    class_=f"sign {sign.class_}",
                    x=x - _WIDE / 2 + 3 + _BADGE / 2,
                    y=y + 4,
                    text_anchor="middle",
                ),
            ]
        if reads:
            parts.append(
                element(
                    "text",
                    reads,
                    x=x,
                    y=y + _HIGH / 2 + 13,
                    text_anchor="middle",
                    class_="soft reads",
                )
            )
        out.append(element("g", *parts, class_=kind, data_node=node["id"]))
    return out


def _reads(node: Node, pair: Pair | None) -> str:
    """Return where a head attends from and to, as in "end \u2192 next .92"."""
    reads = node.get("reads")
    if reads is None or pair is None:
        return ""
    names = {at: role for role, at in pair["positions"].items()}
    query, key = (names.get(at, shown(pair["clean"][at])) for at in reads[:2])
    return f"{query[:9]} \u2192 {key[:9]} {reads[2]:.2f}"


def pair_figure(pair: Pair) -> Markup:
    """Return a prompt token by token, with its positions, their names, and what is corrupted."""
    names: dict[int, list[str]] = {}
    for role, at in pair["positions"].items():
        names.setdefault(at, []).append(role)
    items = []
    for at, (token, other) in enumerate(zip(pair["clean"], pair["corrupted"], strict=True)):
        under = f"{at} {', '.join(names.get(at, []))}".strip()
        changed = element("s", shown(other)) if other != token else ""
        items.append(
            element(
                "li",
                element("b", shown(token)),
                changed,
                element("small", under),
                class_="named" if at in names else None,
            )
        )
    note = "The first pair of prompts: token, corrupted token (struck out), position and its name."
    return element("div", element("p", note, class_="note"), element("ol", *items, class_="prompt"))
