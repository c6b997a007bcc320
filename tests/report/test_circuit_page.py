"""The page of a circuit: its first line, the data of its graph, and what it does not have."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from report import profile_sample as sample
from report.large import circuit_found, evaluation_made

from interp.circuits.explained import explained_nodes
from interp.circuits.find import find_circuit
from interp.circuits.result import Circuit
from interp.circuits.tasks import make_contrast
from interp.core.ties import reaches
from interp.report.circuit_folder import write_evaluation
from interp.report.circuit_graph import EDGES, circuit_answer, circuit_page, graph_document


@pytest.fixture(scope="module")
def planted_circuit(planted_induction) -> tuple[Circuit, dict[str, Any]]:
    """The circuit of the planted model, with what its nodes do."""
    task = make_contrast(planted_induction, "induction", n=8, seed=0)
    found = find_circuit(planted_induction, task)
    return found, explained_nodes(planted_induction, found, task)


def data_of(page: bytes) -> dict[str, Any]:
    return json.loads(re.search(r'id="circuit">(.*?)</script>', page.decode())[1])


def heading(page: bytes) -> str:
    return re.search(r"<h1>(.*?)</h1>", page.decode())[1]


def test_the_graph_has_the_numbers_of_the_circuit(planted_circuit) -> None:
    found, explained = planted_circuit
    data = data_of(circuit_page(found, explained=explained))
    nodes = {node["id"]: node for node in data["nodes"]}
    assert list(nodes) == list(found.ranking)
    frame = found.to_pandas()
    for row in frame[frame["metric"] == "node score"].to_dict("records"):
        node = nodes[row["node"]]
        assert node["effect"] == row["score"]
        assert node["low"] == row["low"]
    edges = {(edge[0], edge[1]): edge for edge in data["edges"]}
    assert set(edges) == set(found.edges)
    for row in frame[frame["metric"] == "edge score"].to_dict("records"):
        numbers = [row["score"], row["low"], row["high"]]
        assert edges[row["from"], row["to"]][2:5] == pytest.approx(numbers, rel=1e-3)
    assert data["set"]["nodes"] == list(found.chosen.nodes)
    assert [tuple(data["edges"][i][:2]) for i in data["set"]["edges"]] == [*found.chosen.edges]


def test_nodes_say_where_they_look_why_and_what_they_write(planted_circuit) -> None:
    found, explained = planted_circuit
    ids = found.made["example"]
    at = ids["positions"]
    previous, induction = explained["L0H3"], explained["L1H0"]
    assert previous["row"][at["first"]] > 0.9  # at the next token, it looks at the one before
    assert induction["row"][at["next"]] > 0.9
    assert len(induction["row"]) == at["end"] + 1
    # it finds its key by what the previous-token head wrote there, and its query by the token
    assert induction["why"]["key"][0][0] == "L0H3"
    assert induction["why"]["query"][0][0] == "embed"
    assert induction["writes"]["at"] == at["end"]
    assert induction["writes"]["up"][0][0] == ids["clean"][at["next"]]
    values = [x for _, x in induction["writes"]["up"]]
    assert values == sorted(values, reverse=True)


def test_a_head_that_moves_the_answer_is_not_explained_by_a_random_writer(planted_circuit) -> None:
    _, explained = planted_circuit
    largest, *rest = [abs(x) for _, x in explained["L1H0"]["why"]["key"]]
    assert largest > 10 * max(rest)


def test_parts_of_edges_sum_to_the_score_and_to_what_is_written(
    bundled_induction, planted_circuit, monkeypatch
) -> None:
    """The planted head meets what L0H3 wrote at the key, and carries the token itself."""
    _, explained = planted_circuit
    why = explained["L1H0"]["why"]
    assert why["pairs"][0][:2] == ("embed", "L0H3")
    assert why["pairs"][0][2] > 0.9 * why["score"]
    assert explained["L1H0"]["value"][0] == ("embed", pytest.approx(1, abs=1e-3))
    monkeypatch.setattr("interp.circuits.explained.PAIRS", 10_000)
    task = make_contrast(bundled_induction, "induction", n=8)
    found = find_circuit(
        bundled_induction, task, "exact_patching"
    )  # no set: the first nodes, here all
    explained = explained_nodes(bundled_induction, found, task)
    heads = [name for name in found.nodes if name[0] == "L"]
    for name in heads:
        why = explained[name]["why"]
        for at, side in enumerate(("query", "key")):
            assert sum(x for _, x in why[side]) == pytest.approx(why["score"], abs=0.01)
            [largest, *_] = why[side]
            met = sum(part[2] for part in why["pairs"] if part[at] == largest[0])
            assert met == pytest.approx(largest[1], abs=0.02)
        assert sum(x for _, x in explained[name]["value"]) == pytest.approx(1, abs=0.01)


def test_what_cannot_be_read_is_said(planted_circuit, planted_induction, monkeypatch) -> None:
    found, _ = planted_circuit
    task = make_contrast(planted_induction, "induction", n=8, seed=0)
    monkeypatch.setattr("interp.circuits.explained.LONGEST", 3)
    explained = explained_nodes(planted_induction, found, task)
    assert set(explained) == {""}
    assert "more than 3" in explained[""]["row"]
    assert data_of(circuit_page(found, explained=explained))["missing"] == explained[""]


def test_prompts_of_another_search_explain_nothing(planted_circuit, planted_induction) -> None:
    found, _ = planted_circuit
    other = make_contrast(planted_induction, "induction", n=8, seed=5)
    explained = explained_nodes(planted_induction, found, other)
    assert set(explained) == {""}
    assert "found on other pairs" in explained[""]["row"]


def test_the_first_line_is_the_answer(planted_circuit) -> None:
    found, _ = planted_circuit
    line = heading(circuit_page(found, command="interp circuit x"))
    names = [row["node"] for row in found.tables["matters"] if row["node"][:1] == "L"]
    assert line.startswith(f"{len(names)} heads matter; {len(found.chosen.nodes)} nodes and ")
    assert line.endswith(f"on {found.chosen.pairs} pairs not used to find them")
    of = {"figure": "faithfulness of the set", "value": 0.914, "low": 0.873, "high": 0.951}
    measured = {"figures": [of | {"random": 0.124}]}
    line = circuit_answer(found, measured)
    assert "91 % [87, 95] of induction in planted:induction; random sets" in line
    assert line.endswith("keep 12 % on average")
    page = circuit_page(found, measured, command="interp circuit x").decode()
    assert page.index("interp circuit x") > page.index("</main>")


def test_estimates_are_marked_and_measurements_are_not() -> None:
    found = circuit_found(40)
    document = graph_document(found)
    assert not any(document["how"][edge[5]][1] for edge in document["edges"])
    rough = ("estimated by gradients, not patched",) * len(found.nodes)
    document = graph_document(replace(found, measured=rough))
    assert {tuple(document["how"][edge[5]]) for edge in document["edges"]} == {(rough[0], True)}
    assert circuit_answer(replace(found, measured=rough)).endswith(", an estimate")
    assert all(node["rough"] for node in document["nodes"])


def test_a_large_circuit_is_below_a_megabyte_and_says_what_is_left_out() -> None:
    found = circuit_found(7_000)
    page = circuit_page(found)
    assert len(page) < 1_000_000
    data = data_of(page)
    assert len(data["edges"]) == EDGES
    assert data["left_out"] == 2_000
    kept = min(abs(edge[2]) for edge in data["edges"])
    scores = np.sort(np.abs(found.edge_score))  # those tied up to rounding count as equal
    assert reaches(kept, scores[2_000], scale=scores[-1])


def nothing(nodes: int) -> Circuit:
    names = tuple(f"L0H{i}" for i in range(nodes))
    return Circuit(
        "m",
        1,
        4,
        "<b>task</b>",
        "exact_patching",
        "head",
        names,
        np.full(nodes, math.nan),
        np.full(nodes, math.nan),
        3,
        "logits",
    )


@pytest.mark.parametrize("nodes", [0, 1])
def test_no_edge_and_no_score(nodes) -> None:
    page = circuit_page(nothing(nodes))
    data = data_of(page)
    assert data["edges"] == []
    assert [node["id"] for node in data["nodes"]] == ["L0H0"][:nodes]
    assert b"<b>task" not in page


def test_a_circuit_of_a_model_that_is_not_there(planted_circuit, tmp_path) -> None:
    found, _ = planted_circuit
    replace(found, model="gone/model").to_toml(tmp_path / "circuit.toml")
    again = Circuit.load(tmp_path / "circuit.toml")
    page = circuit_page(again)  # the file holds all that is drawn
    assert "gone/model" in heading(page)
    assert len(data_of(page)["nodes"]) == len(found.nodes)


def test_names_of_others_stay_text(planted_circuit) -> None:
    found, _ = planted_circuit
    hostile = "</script><script>alert(1)</script>\u202egpj.exe"
    page = circuit_page(replace(found, model=hostile)).decode()
    assert "<script>alert" not in page
    assert "\u202e" not in page


def test_sentences_of_a_profile_in_the_folder_are_shown(planted_circuit, tmp_path) -> None:
    found, explained = planted_circuit
    evaluation = evaluation_made()
    profile = sample.profile(model=found.model)
    hashed = dict(profile.provenance) | {"content_hash": found.made["content_hash"]}
    profile = replace(profile, provenance=hashed)
    profile.save(tmp_path / "profile.json")
    asked = {"command": "interp circuit", "held_out": "on 4 other pairs", "explained": explained}
    write_evaluation(found, evaluation, tmp_path, **asked)
    page = (tmp_path / "circuit.html").read_bytes()
    says = {node["id"]: node.get("says") for node in data_of(page)["nodes"]}
    name = next(one["name"] for one in profile.descriptions if one["name"] in says)
    assert says[name] == profile.description(name)["sentence"]
    # of other weights, or damaged: not shown, and the latter is said
    replace(profile, provenance=hashed | {"content_hash": "other"}).save(tmp_path / "profile.json")
    write_evaluation(found, evaluation, tmp_path, **asked)
    page = (tmp_path / "circuit.html").read_bytes()
    assert not any("says" in node for node in data_of(page)["nodes"])
    (tmp_path / "profile.json").write_text("[1")
    write_evaluation(found, evaluation, tmp_path, **asked)
    assert "profile.json" in data_of((tmp_path / "circuit.html").read_bytes())["missing"]["says"]
