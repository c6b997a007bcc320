"""The still picture: what is in it, that it is safe, and that it says what it leaves out."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
from circuits.test_circuit_result import made

from interp.circuits.exports import DRAWN
from interp.report.circuit_drawing import node_places

SVG = "{http://www.w3.org/2000/svg}"


def parts(text):
    root = ET.fromstring(text)
    names = {t.text: t for t in root.iter(f"{SVG}text")}
    lines = list(root.iter(f"{SVG}path"))
    return root, names, lines


def test_every_edge_and_node_is_there(tmp_path) -> None:
    c = made()
    text = c.to_svg(tmp_path / "c.svg")
    assert (tmp_path / "c.svg").read_text() == text
    root, names, lines = parts(text)
    assert {"embed", "L0H0", "L0H1", "mlp0", "L1H0", "logits"} <= set(names)
    assert "L1H1" not in names  # no edge leads there, as in the interactive graph
    told = {p.find(f"{SVG}title").text: p for p in lines}
    assert set(told) == {
        f"{a} to {b}: {s:.4g} logits" for (a, b), s in zip(c.edges, c.edge_score, strict=True)
    }
    hurts, helps = told["L0H0 to L1H0.k: -2 logits"], told["mlp0 to logits: 1 logits"]
    assert (hurts.get("stroke"), hurts.get("stroke-dasharray")) == ("#D55E00", "5 3")
    assert (helps.get("stroke"), helps.get("stroke-dasharray")) == ("#0072B2", None)
    assert float(hurts.get("stroke-width")) == 4.0 > float(helps.get("stroke-width"))
    assert {"q", "k", "v"} <= set(names)  # which input each edge enters
    assert "4 of 4 edges, the largest scores in logits; blue helps, orange and broken hurts" in (
        names
    )
    assert root.get("aria-label").startswith("4 of 4 edges")
    titles = [t.text for t in root.iter(f"{SVG}title")]
    assert titles[0] == 'say "x" in m<b>, by codes'
    assert "L1H0: 2 logits, mover" in titles


def test_layers_stand_as_in_the_interactive_graph() -> None:
    c = made()
    _, names, lines = parts(c.to_svg())
    where = node_places(c.top(60))
    for one in where:
        for other in where:
            a, b = (float(names[n].get("y")) for n in (one, other))
            assert (a > b) == (where[one][1] < where[other][1])  # down is a larger y
            if where[one][1] == where[other][1] and where[one][0] < where[other][0]:
                assert float(names[one].get("x")) < float(names[other].get("x"))
    for line in lines:  # from below to above
        ys = [float(y) for y in re.findall(r" (-?[\d.]+)(?=C| |$)", line.get("d"))]
        assert ys[0] > ys[-1]


def test_only_the_largest_are_shown_and_that_is_said() -> None:
    _, names, lines = parts(made().to_svg(k=2))
    assert len(lines) == 2
    assert any(t and t.startswith("2 of 4 edges") for t in names)
    assert "embed" not in names
    n = 1000
    many = made(
        nodes=tuple(f"L0H{i}" for i in range(40)),
        score=np.zeros(40),
        sem=np.zeros(40),
        roles={},
        edges=tuple((f"L0H{i % 40}", f"L1H{i // 40}.q") for i in range(n)),
        edge_score=np.arange(n) + 1.0,
    )
    _, names, lines = parts(many.to_svg(k=10**6))
    assert len(lines) == DRAWN <= 300
    assert any(t and t.startswith("300 of 1000 edges") for t in names)
    assert "q" not in names  # letters would hide one another
    bare = made(edges=(), edge_score=np.zeros(0))
    assert "3 of 6 nodes" in bare.to_svg(k=3)


def test_names_are_no_markup() -> None:
    text = made(model='</svg><script src="x">', unit="<b>").to_svg()
    assert "<script" not in text
    assert "<b>" not in text
    ET.fromstring(text)
