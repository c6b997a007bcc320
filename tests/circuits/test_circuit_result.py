"""Circuits: what is kept of them, their other forms, and the picture."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import networkx as nx
import numpy as np
import pytest

from interp.circuits.declaration import Found
from interp.circuits.exports import DRAWN
from interp.circuits.nodes import layer_of, node_of
from interp.circuits.result import Circuit
from interp.core.errors import OptionError, StoreError
from interp.report.circuit_drawing import node_places


def made(**options) -> Circuit:
    given = {
        "model": "m<b>",
        "n_layers": 2,
        "n_heads": 2,
        "task": 'say "x"',
        "method": "codes",
        "level": "edge",
        "nodes": ("embed", "L0H0", "L0H1", "mlp0", "L1H0", "L1H1"),
        "score": np.array([0.5, -3.0, 0.0, 1.0, 2.0, 0.1]),
        "sem": np.array([0.1, 0.1, np.nan, 0.1, 0.1, 0.1]),
        "n": 8,
        "unit": "logits",
        "edges": (("L0H0", "L1H0.q"), ("L0H0", "L1H0.k"), ("mlp0", "logits"), ("embed", "L0H1.v")),
        "edge_score": np.array([0.5, -2.0, 1.0, 0.1]),
        "roles": {"mover": ("L1H0", "L1H1")},
        "notes": ("one",),
        "tables": {"t": [{"a": 1.0, "b": float("nan")}]},
        "made": {"seed": 0},
    } | options
    return Circuit(**given)


def test_order_is_by_size_of_the_score() -> None:
    c = made()
    assert c.ranking == ("L0H0", "L1H0", "mlp0", "embed", "L1H1", "L0H1")
    assert c.head_names == ("L0H0", "L0H1", "L1H0", "L1H1")
    assert len(c.nodes) == 6
    assert len(c) == 10


def test_the_first_edges_bring_their_nodes() -> None:
    top = made().top(2)
    assert top.edges == (("L0H0", "L1H0.k"), ("mlp0", "logits"))
    assert top.nodes == ("L0H0", "mlp0", "L1H0")
    assert top.score.tolist() == [-3.0, 1.0, 2.0]
    assert top.roles == {"mover": ("L1H0",)}


def test_the_first_nodes_keep_the_edges_between_them() -> None:
    top = made().top(2, heads_only=True)
    assert top.nodes == ("L0H0", "L1H0")
    assert len(top.edges) == 2
    bare = made(edges=(), edge_score=np.zeros(0))
    assert bare.top(3).nodes == ("L0H0", "mlp0", "L1H0")
    with pytest.raises(OptionError, match="k=-1"):
        made().top(-1)


def test_it_comes_back_from_json(tmp_path) -> None:
    c = made()
    text = c.to_json(tmp_path / "c.json")
    back = Circuit.from_json(tmp_path / "c.json")
    assert back.to_json() == text
    assert np.isnan(back.sem[2])
    assert back.roles == c.roles
    (tmp_path / "c.json").write_text("{")
    with pytest.raises(StoreError, match="is not JSON"):
        Circuit.from_json(tmp_path / "c.json")
    told = json.loads(text)
    for wrong in ({"format": "x"}, told | {"score": [1.0]}, told | {"edges": []}):
        with pytest.raises(StoreError, match="not a circuit, or it is damaged"):
            Circuit.from_dict(wrong)


def test_as_a_graph() -> None:
    graph = made().to_networkx()
    assert set(graph.nodes) == {*made().nodes, "logits"}
    # one writer into two inputs of one head
    assert graph.edges["L0H0", "L1H0", "q"] == {"score": 0.5, "input": "L1H0.q"}
    assert graph.edges["L0H0", "L1H0", "k"] == {"score": -2.0, "input": "L1H0.k"}
    assert graph.edges["mlp0", "logits", "in"] == {"score": 1.0, "input": "logits"}
    assert graph.number_of_edges() == len(made().edges)
    assert nx.is_directed_acyclic_graph(graph)


def test_graphml_is_read_back() -> None:
    edges = (*made().edges, ("embed", "L0H0.v"), ("mlp0", "L1H0.k"))  # keys are there twice
    c = made(edges=edges, edge_score=np.arange(-3.0, 3.0))
    text = c.to_graphml()
    assert c._graphml() == text
    ids = [e.get("id") for e in ET.fromstring(text).iter() if e.tag.endswith("}edge")]
    assert sorted(map(str, ids)) == sorted(f"{a}->{b}" for a, b in edges)
    graph = nx.parse_graphml(text)
    read = {(a, d["input"]): d["score"] for a, _, d in graph.edges(data=True)}
    assert read == dict(zip(edges, c.edge_score.tolist(), strict=True))
    assert sorted((a, b) for a, b, _ in graph.edges) == sorted(
        (a, b.partition(".")[0]) for a, b in edges
    )
    scores = dict(zip(c.nodes, c.score.tolist(), strict=True))
    assert {n: d["score"] for n, d in graph.nodes(data=True) if n != "logits"} == scores
    assert {n: d.get("role", "") for n, d in graph.nodes(data=True)} == {
        n: "mover" if n.startswith("L1") else "" for n in graph
    }
    assert graph.graph["model"] == "m<b>"


def dot_statements(text: str) -> dict[str, dict[str, str]]:
    """Statements of a DOT file by what stands before their attributes, with the attributes.

    By the grammar of graphviz.org/doc/info/lang.html: nodes and edges whose IDs are quoted, and a
    list of `ID = ID` in brackets.
    """
    head, *lines, end = text.strip().splitlines()
    assert head == "digraph circuit {"
    assert end == "}"
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        subject, bracket, rest = line.strip().removesuffix(";").partition(" [")
        assert rest.endswith("]") == bool(bracket)
        given = re.findall(r'(\w+)=(?:"([^"]*)"|(\S+?))(?=[\s\]])', rest)
        found.setdefault(subject, {}).update({k: a or b for k, a, b in given})
    return found


def test_dot_is_read_back(tmp_path) -> None:
    c = made()
    dot = c.to_dot(tmp_path / "c.dot")
    assert (tmp_path / "c.dot").read_text() == dot
    blue, orange = "#0072B2", "#D55E00"  # Okabe and Ito: helps, hurts
    found = dot_statements(dot)
    for name, score in zip(c.nodes, c.score, strict=True):
        stated = found.pop(f'"{name}"')
        assert stated["color"] == (blue if score >= 0 else orange)
        assert float(stated["penwidth"]) == pytest.approx(0.5 + 3 * abs(score) / 3, abs=6e-3)
        assert float(stated["tooltip"].split()[0]) == pytest.approx(score, abs=6e-4)
    for (a, b), score in zip(c.edges, c.edge_score, strict=True):
        head, _, label = b.partition(".")
        if (a, head) == ("L0H0", "L1H0"):
            continue
        stated = found.pop(f'"{a}" -> "{head}"')
        assert stated.get("label", "") == label
        assert stated["color"] == (blue if score >= 0 else orange)
        assert float(stated["penwidth"]) == pytest.approx(0.5 + 3 * abs(score) / 2, abs=6e-3)
    # two edges between the same heads are two statements, each with its own input
    assert '"L0H0" -> "L1H0" [label="q" color="#0072B2" penwidth=1.25];' in dot
    assert '"L0H0" -> "L1H0" [label="k" color="#D55E00" penwidth=3.50];' in dot
    assert set(found) == {"rankdir=BT", "node", '"L0H0" -> "L1H0"'}
    still = made(score=np.zeros(6), edge_score=np.zeros(4)).to_dot()  # no score to divide by
    assert still.count("penwidth=0.50") == 10


def test_mermaid_is_read_back() -> None:
    c = made(edge_score=np.array([0.5, -2.0, 0.0, 0.1]))
    head, *lines = c.to_mermaid().splitlines()
    assert head == "flowchart BT"
    nodes = [re.fullmatch(r'  (\w+)\["(\w+) (\S+).*"\]', line) for line in lines[:6]]
    assert [m and (m[1], m[2], float(m[3])) for m in nodes] == [
        (n, n, s) for n, s in zip(c.nodes, c.score.tolist(), strict=True)
    ]
    edges = [re.fullmatch(r"  (\w+) (-->|-\.->)(?:\|(\w)\|)? (\w+)", line) for line in lines[6:]]
    assert [m and (m[1], m[2], m[3], m[4]) for m in edges] == [
        ("L0H0", "-->", "q", "L1H0"),
        ("L0H0", "-.->", "k", "L1H0"),
        ("mlp0", "-->", None, "logits"),
        ("embed", "-->", "v", "L0H1"),
    ]


def test_layers_from_below() -> None:
    c = made()
    assert [layer_of(n, 2) for n in ("embed", "L0H3", "mlp0", "L1H0", "logits")] == [
        -1,
        0,
        0.5,
        1,
        2,
    ]
    assert node_of("L0H3.q") == "L0H3"
    where = node_places(c)
    assert where["L0H0"] == (-0.5, 0.0)
    assert where["logits"] == (0.0, 2.0)


def test_the_slider_shows_more_and_more() -> None:
    figure = made().plot()
    slider = figure.layout.sliders[0]
    assert [step.label for step in slider.steps] == ["1", "2", "3", "4"]
    shown = [sum(step.args[0]["visible"]) for step in slider.steps]
    assert shown == [2, 3, 4, 5]  # one trace per edge, and the nodes
    assert sum(bool(t.visible) for t in figure.data) == 5
    assert "m&lt;b>" in figure.layout.title.text


def test_large_circuits_are_not_drawn_whole() -> None:
    n = 500
    nodes = tuple(f"L0H{i}" for i in range(n))
    many = made(
        nodes=nodes,
        score=np.arange(n, dtype=float),
        sem=np.zeros(n),
        edges=(),
        edge_score=np.zeros(0),
        roles={},
    )
    assert max(len(t.text) for t in many.plot(k=10**6).data) == DRAWN


def test_it_shows_itself(tmp_path) -> None:
    c = made()
    assert "&lt;b&gt;" in c._repr_html_()
    assert c.nodes_to_pandas()["role"].tolist() == ["", "", "", "", "mover", "mover"]
    assert len(c.edges_to_pandas()) == 4
    c.save_html(tmp_path / "c.html")
    assert "<b>" not in (tmp_path / "c.html").read_text().partition("<script")[0]


def test_nodes_and_edges_are_rows_of_one_table(tmp_path) -> None:
    c = made(made={"made_by": "a test", "versions": {}})
    frame = c.to_pandas()
    assert frame["metric"].tolist() == ["node score"] * 6 + ["edge score"] * 4
    assert frame["score"].tolist() == [*c.score, *c.edge_score]
    assert frame["node"].tolist() == [*c.nodes, "", "", "", ""]
    assert frame["to"].tolist()[6:] == ["L1H0.q", "L1H0.k", "logits", "L0H1.v"]
    assert [str(h) for h in c.heads()] == list(c.head_names)
    assert c["edge score"].edges == c.edges
    assert c["edge score"].plot().data
    assert c["node score"].nodes == c.nodes
    assert c.top(3, by="lowest").nodes == ("L0H0", "L0H1")
    assert len(c.top(0)) == 0
    for suffix in (".parquet", ".csv", ".json", ".toml"):
        c.save(tmp_path / f"c{suffix}")
        assert Circuit.load(tmp_path / f"c{suffix}").equals(c)
    assert Circuit.from_json(tmp_path / "c.json").equals(c)  # as the command line reads it
    assert Circuit.from_toml(tmp_path / "c.toml").equals(c)
    c.to_toml(tmp_path / "own.toml")
    assert Circuit.load(tmp_path / "own.toml").to_json() == c.to_json()
    for suffix in (".svg", ".graphml", ".html"):
        c.save(tmp_path / f"c{suffix}")


def test_a_method_scores_every_edge_that_it_names() -> None:
    one = {"nodes": ("L0H0",), "per_prompt": np.ones((1, 2)), "unit": "logits"}
    edges = (("embed", "L0H0.v"), ("L0H0", "logits"))
    Found(**one, edges=edges, edges_per_prompt=np.ones((2, 2)))
    for rows in (1, 3):
        with pytest.raises(OptionError, match="edges_per_prompt of a circuit method's result"):
            Found(**one, edges=edges, edges_per_prompt=np.ones((rows, 2)))
