"""Circuits in MIB's JSON: names, edges and scores, there and back; its areas by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import interp
from interp.circuits import Circuit, find_circuit, make_contrast
from interp.circuits.edge_evaluation import EdgeEvaluation, evaluate_edges
from interp.circuits.find import stored_circuit
from interp.circuits.residual_graph import ResidualGraph
from interp.core.errors import OptionError, StoreError


@pytest.fixture(scope="module")
def mib_model() -> interp.Model:
    return interp.load("planted:induction")


@pytest.fixture(scope="module")
def mib_circuit(mib_model: interp.Model) -> Circuit:
    pairs = make_contrast(mib_model, "planted:induction", n=8)
    return find_circuit(mib_model, pairs, "acdc")


def test_every_edge_of_the_model_is_written_with_a_score(mib_model, mib_circuit) -> None:
    document = json.loads(mib_circuit.to_mib(mib_model))
    graph = ResidualGraph.of(mib_model)
    assert len(document["edges"]) == len(graph.edges)
    assert document["cfg"] == {
        "n_layers": mib_model.n_layers,
        "n_heads": mib_model.n_heads,
        "d_model": mib_model.d_model,
        "parallel_attn_mlp": False,
    }
    assert document["nodes"]["input"]["in_graph"]
    assert document["nodes"]["logits"]["in_graph"]
    assert all(isinstance(held["score"], float) for held in document["edges"].values())
    found = dict(zip(mib_circuit.edges, mib_circuit.edge_score, strict=True))
    value = found["L0H3", "L1H0.k"]
    assert document["edges"]["a0.h3->a1.h0<k>"] == {"score": float(value), "in_graph": True}
    assert value > 0


def test_a_circuit_comes_back(mib_model, mib_circuit, tmp_path: Path) -> None:
    file = tmp_path / "circuit.json"
    mib_circuit.to_mib(mib_model, file)
    back = stored_circuit(file, mib_model, "induction")
    assert (back.model, back.task, back.level) == (mib_model.name, "induction", "edge")
    assert back.nodes == ResidualGraph.of(mib_model).writers
    mine = dict(zip(mib_circuit.edges, np.nan_to_num(mib_circuit.edge_score), strict=True))
    theirs = dict(zip(back.edges, back.edge_score, strict=True))
    assert all(theirs[edge] == mine.get(edge, 0.0) for edge in theirs)
    assert (
        json.loads(back.to_mib(mib_model))["edges"].keys()
        == json.loads(mib_circuit.to_mib(mib_model))["edges"].keys()
    )
    other = interp.load("planted:zoo")
    with pytest.raises(OptionError, match="find a circuit for this model"):
        stored_circuit(file, other, "induction")
    with pytest.raises(OptionError, match=r"the circuit is of .*, not of "):
        mib_circuit.to_mib(other)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["edges"].update({"a9.h1->logits": {"in_graph": True, "score": 1.0}}),
        lambda d: d["edges"].update({"logits": {"in_graph": True, "score": 1.0}}),
        lambda d: d["nodes"].update({"x": {"in_graph": True}}),
        lambda d: d["nodes"]["input"].update(score="much"),
        lambda d: d["nodes"]["input"].pop("in_graph"),
        lambda d: d.update(cfg={}),
    ],
)
def test_a_damaged_file_is_one_error(mib_model, mib_circuit, tmp_path: Path, change) -> None:
    document = json.loads(mib_circuit.to_mib(mib_model))
    change(document)
    file = tmp_path / "circuit.json"
    file.write_text(json.dumps(document))
    with pytest.raises(StoreError, match="no circuit of MIB, or it is damaged"):
        Circuit.from_json(file)


def test_areas_are_those_of_a_case_by_hand(mib_model, mib_circuit) -> None:
    pairs = make_contrast(mib_model, "planted:induction", n=8, seed=1)
    found = evaluate_edges(mib_model, mib_circuit, pairs)
    assert isinstance(found, EdgeEvaluation)
    f = dict(zip(found.sizes, found.faithfulness, strict=True))
    shares = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
    value = [f[max(1, round(share * found.total))] for share in shares]
    steps = list(zip(shares, shares[1:], value, value[1:], strict=False))
    cpr = sum((b - a) * (x + y) / 2 for a, b, x, y in steps)
    cmd = sum((b - a) * (abs(1 - x) + abs(1 - y)) / 2 for a, b, x, y in steps)
    assert found.as_mib() == pytest.approx({"CPR": cpr, "CMD": cmd})
    with pytest.raises(OptionError, match="MIB's shares are the sizes"):
        found.top(1).as_mib()
