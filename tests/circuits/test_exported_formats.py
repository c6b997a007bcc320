"""Graphs made by hand, read back from files of other programs by those programs' definitions."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest

from interp.circuits.mib import mib_fields, to_mib
from interp.circuits.why.graph_edges import GraphNode
from interp.circuits.why.graph_result import AttributionGraph
from interp.circuits.why.tracer_json import DICTIONARY_ERROR, cantor
from interp.text.graphs.graph import AttentionGraph

NODES = (
    GraphNode("token@0", "embedding", -1, 7, 0, 1.5, influence=0.05),
    GraphNode("L0H1@1", "head", 0, 1, 1, 2.5, influence=0.2),
    GraphNode("L1H0@2", "head", 1, 0, 2, -0.5, influence=0.15),
    GraphNode("L1H0@1", "head", 1, 0, 1, 0.25, influence=0.0),
    GraphNode("mlp1@2", "mlp", 1, 0, 2, 3.0, influence=0.1),
    GraphNode("mlp1:error@2", "error", 1, 0, 2, 0.1, influence=0.04),
    GraphNode("f5@2", "feature", 1, 5, 2, 4.0, influence=0.06),
    GraphNode("f:error@2", "error", 1, 1, 2, 4.5, influence=0.0),
    GraphNode("out9@2", "logit", 2, 9, 2, 8.0, p=0.6, influence=0.3),
    GraphNode("out4@2", "logit", 2, 4, 2, 7.0, p=0.25, influence=0.1),
)
EDGES = (
    ("token@0", "L0H1@1", 0.5, 0.4),
    ("L0H1@1", "L1H0@2", -0.25, 0.3),
    ("mlp1@2", "out9@2", 2.0, 0.2),
    ("L1H0@2", "out4@2", -1.0, 0.1),
)


def attribution() -> AttributionGraph:
    sources, targets, weights, influences = zip(*EDGES, strict=True)
    return AttributionGraph(
        "m",
        (" a", "b\n", "c\t"),
        (7, 3, 2),
        2,
        2,
        NODES,
        sources,
        targets,
        np.array(weights),
        np.array(influences),
        20,
        30,
        0.0,
        0.1,
        {9: " yes", 4: "no\n"},
        (0.8, 0.98),
    )


def unpaired(z: int) -> tuple[int, int]:
    """The inverse of Cantor's pairing."""
    w = (math.isqrt(8 * z + 1) - 1) // 2
    y = z - w * (w + 1) // 2
    return w - y, y


def test_circuit_tracer_reads_every_node_and_edge() -> None:
    """By `circuit_tracer/frontend/graph_models.py` and `utils/create_graph_files.py`."""
    assert [unpaired(cantor(a, b)) for a in range(9) for b in range(9)] == [
        (a, b) for a in range(9) for b in range(9)
    ]
    found = attribution()
    document = json.loads(found.to_circuit_tracer(slug="s"))
    meta = document["metadata"]
    assert (meta["slug"], meta["scan"], meta["node_threshold"]) == ("s", "m", 0.8)
    assert meta["prompt_tokens"] == [" a", "b⏎", "c→"]
    assert meta["prompt"] == " ab\nc\t"
    layers, heads = 2, 2
    numbers = {
        "L0H1@1": 1,
        "L1H0@2": 0,
        "L1H0@1": 0,
        "mlp1@2": heads,
        "f5@2": heads + 1 + 5,
        "f:error@2": heads + 1 + 2**31,
    }
    assert DICTIONARY_ERROR == 2**31
    ids = {"token@0": "E_7_0", "mlp1:error@2": "0_1_2", "out9@2": "3_9_2", "out4@2": "3_4_2"}
    order = sorted(NODES, key=lambda x: -x.influence)
    reached = np.cumsum([x.influence for x in order]).clip(max=1.0)
    running = dict(zip((x.name for x in order), reached, strict=True))
    for node, stated in zip(NODES, document["nodes"], strict=True):
        name = ids.get(node.name) or f"{node.layer}_{layers + numbers[node.name]}_{node.position}"
        assert stated["node_id"] == name
        first, second, position = name.split("_")
        assert stated["jsNodeId"] == f"{first}_{second}-{position}"
        assert stated["ctx_idx"] == node.position == int(position)
        assert (stated["activation"], stated["token_prob"]) == (node.activation, node.p)
        assert stated["influence"] == pytest.approx(running[node.name])
        assert stated["is_target_logit"] == (node.name == "out9@2")
        match node.kind:
            case "embedding":
                want = ("E", node.position, "embedding", " a")
            case "logit":
                text = {"out9@2": ' yes" (p=0.600)', "out4@2": 'no⏎" (p=0.250)'}[node.name]
                want = (str(layers + 1), node.number, "logit", f'Output "{text}')
            case "error" if node.number == 0:
                want = ("1", -1, "mlp reconstruction error", found.described(node))
            case _:
                pair = (node.layer, layers + numbers[node.name])
                assert unpaired(stated["feature"]) == pair
                want = (
                    str(node.layer),
                    stated["feature"],
                    "cross layer transcoder",
                    found.described(node),
                )
        assert want == tuple(stated[k] for k in ("layer", "feature", "feature_type", "clerp"))
    of = dict(zip((n.name for n in NODES), (x["node_id"] for x in document["nodes"]), strict=True))
    assert [(e["source"], e["target"], e["weight"]) for e in document["links"]] == [
        (of[a], of[b], w) for a, b, w, _ in EDGES
    ]
    # one head at two places is a supernode; a single place and the outputs are none
    assert document["qParams"]["supernodes"] == [
        [label, *(of[n] for n in names)]
        for label, names in found.groups().items()
        if len(names) > 1 and label != "logits"
    ]
    assert ["L1H0", of["L1H0@2"], of["L1H0@1"]] in document["qParams"]["supernodes"]
    assert json.loads(found.to_circuit_tracer())["metadata"]["slug"].startswith("interp-")


def test_attribution_graphs_are_read_back_from_graphml() -> None:
    graph = nx.parse_graphml(attribution()._graphml())
    assert graph.is_directed()
    assert {(a, b): (d["weight"], d["influence"]) for a, b, d in graph.edges(data=True)} == {
        (a, b): (w, i) for a, b, w, i in EDGES
    }
    for node in NODES:
        stated = graph.nodes[node.name]
        for name in ("kind", "layer", "position", "activation", "influence"):
            assert stated[name] == getattr(node, name)


def test_attention_graphs_are_read_back_from_graphml() -> None:
    weights = np.array([[0.0, 0.0, 0.0], [0.5, 0.0, 0.0], [0.2, 0.8, 0.0]])
    given: Any = {
        "nodes": ("a", "b<", "c"),
        "weights": weights,
        "even": np.tri(3) / 3,
        "edges": np.array([[1, 0], [2, 0], [2, 1]]),
        "threshold": "value:0.1",
        "provenance": {},
    }
    names = AttentionGraph.__dataclass_fields__
    found = AttentionGraph(**{k: v for k, v in given.items() if k in names})
    graph = nx.parse_graphml(found._graphml(), node_type=int)
    assert dict(graph.nodes(data="name")) == {0: "a", 1: "b<", 2: "c"}
    assert {(a, b): d for a, b, d in graph.edges(data=True)} == {
        (a, b): {"weight": weights[a, b], "length": 1 / weights[a, b]}
        for a, b in ((1, 0), (2, 0), (2, 1))
    }


@pytest.mark.parametrize("level", ["edge", "head"])
@pytest.mark.parametrize("searched", [False, True])
def test_mib_reads_what_is_in_the_circuit(level: str, searched: bool, monkeypatch) -> None:
    """By `EAP-IG/src/eap/graph.py`: nodes `input`, `a0.h1`, `m0`, `logits`; edges `a->b<q>`."""
    graph = SimpleNamespace(
        writers=("embed", "L0H0", "L0H1", "mlp0"),
        edges=(
            ("embed", "L0H0.q"),
            ("embed", "L0H1.v"),
            ("L0H0", "mlp0"),
            ("mlp0", "logits"),
            ("embed", "logits"),
            ("L0H1", "mlp0"),
        ),
        layers=[SimpleNamespace(parallel=False), SimpleNamespace(parallel=True)],
    )
    monkeypatch.setattr("interp.circuits.mib.ResidualGraph", SimpleNamespace(of=lambda _: graph))
    chosen = SimpleNamespace(nodes=("L0H1",), edges=(("embed", "L0H1.v"),)) if searched else None
    circuit = SimpleNamespace(
        model="m",
        nodes=("L0H0", "mlp0", "L0H1"),
        largest=np.array([0.5, -1.0, 0.0]),
        level=level,
        edges=(("embed", "L0H0.q"), ("L0H0", "mlp0"), ("mlp0", "logits")),
        edge_score=np.array([0.25, -2.0, 0.0]),
        chosen=chosen,
    )
    model: Any = SimpleNamespace(name="m", n_layers=1, n_heads=2, d_model=8)
    document = json.loads(to_mib(circuit, model))
    assert document["cfg"] == {"n_layers": 1, "n_heads": 2, "d_model": 8, "parallel_attn_mlp": True}
    inside = {"input", "logits"} | ({"a0.h1"} if searched else {"a0.h0", "m0"})
    scores = {"a0.h0": 0.5, "a0.h1": 0.0, "m0": -1.0}
    assert list(document["nodes"]) == ["input", "a0.h0", "a0.h1", "m0", "logits"]
    for name, held in document["nodes"].items():
        assert held["in_graph"] == (name in inside)
        assert held.get("score") == scores.get(name)
    assert list(document["edges"]) == [
        "input->a0.h0<q>",
        "input->a0.h1<v>",
        "a0.h0->m0",
        "m0->logits",
        "input->logits",
        "a0.h1->m0",
    ]
    found = {
        name: (held.get("score"), held["in_graph"]) for name, held in document["edges"].items()
    }
    if level == "head":  # both ends are in the circuit
        both = {
            "m0->logits": not searched,
            "a0.h0->m0": not searched,
            "a0.h1->m0": False,
            "input->a0.h0<q>": not searched,
            "input->a0.h1<v>": searched,
            "input->logits": True,
        }
        assert found == {name: (None, held) for name, held in both.items()}
    else:
        known = {"input->a0.h0<q>": 0.25, "a0.h0->m0": -2.0}
        kept = {"input->a0.h1<v>"} if searched else set(known)
        assert found == {name: (known.get(name, 0.0), name in kept) for name in found}
    back = mib_fields(document)
    assert back["nodes"] == graph.writers
    assert back["score"][1:].tolist() == [0.5, 0.0, -1.0]
    assert back["edges"] == (graph.edges if level == "edge" else ())
    assert (back["n_layers"], back["n_heads"], back["level"]) == (1, 2, level)
    assert back["roles"] == {
        "in the file's circuit": ("embed", "L0H1") if searched else ("embed", "L0H0", "mlp0")
    }
