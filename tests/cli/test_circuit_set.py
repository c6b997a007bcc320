"""Edges and the chosen set of `interp circuit`: measured, listed, and the same in every form."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

import interp
from interp.circuits.find import find_circuit
from interp.circuits.result import Circuit
from interp.circuits.tasks import make_contrast
from interp.core.ties import snapped


@pytest.mark.slow
def test_edges_are_measured_against_those_that_were_built_in(run, tmp_path) -> None:
    args = (
        "circuit",
        "planted:induction",
        "--task",
        "induction",
        "--method",
        "exact-patching",
        "--units",
        "edge",
        "-n",
        4,
        "--random",
        2,
        "-o",
        tmp_path,
    )
    told = run(*args).stdout
    assert "  edges: share kept by the first of 110, others corrupted, and by as many" in told
    built = "built in L0H3>L1H0.k: AUROC 1.000 [1.000, 1.000] of 48 edges between heads"
    assert f"\n    {built}\n" in told
    assert "heads keep 1.00 [1.00, 1.00], random circuits with as many in each layer 0.00" in told
    folder = tmp_path / "planted-induction"
    edges = json.loads((folder / "evaluation.json").read_text())["edges"]
    assert edges["truth"] == [["L0H3", "L1H0.k"]]
    assert edges["against_truth"]["auroc"] == 1.0
    assert "L0H3&gt;L1H0.k: AUROC 1.000" in (folder / "circuit.html").read_text()


@pytest.mark.slow
def test_edges_are_listed_and_written(run, tmp_path) -> None:
    """What is called edges are edges: on the screen, the largest first, and in a file."""
    args = (
        "circuit",
        "planted:induction",
        "--task",
        "planted:induction",
        "--method",
        "exact-patching",
        "--units",
        "edge",
        "-n",
        4,
        "--random",
        2,
        "--top",
        3,
        "-o",
        tmp_path,
    )
    shown = run(*args).stdout.splitlines()
    folder = tmp_path / "planted-induction"
    table = pd.read_csv(folder / "edges.csv")
    assert list(table) == ["from", "to", "score", "sem", "n", "unit", "in_set"]
    assert len(table) == 110
    assert np.all(np.diff(snapped(table["score"].abs())) <= 0)  # up to rounding
    assert (table["unit"] == "logits").all()
    assert {"L0H3 -> L1H0.k", "L1H0 -> logits"} <= set(table["from"] + " -> " + table["to"])
    found = Circuit.from_json(folder / "circuit.json")
    assert shown[1] == "  planted:induction, exact_patching, edges: score (logits)"
    for line, row in zip(shown[2:5], table.itertuples(), strict=False):
        assert line.split()[:3] == [row[1], "->", row[2]]
        assert float(line.split()[3]) == pytest.approx(row.score, rel=1e-3)
        at = found.edges.index((row[1], row[2]))
        assert found.edge_sem[at] == pytest.approx(row.sem)
    assert shown[5] == "    and 107 more, 3 of all 110 in the smallest set"
    assert shown[6] == "  nodes: score (logits)"
    assert Circuit.from_toml(folder / "circuit.toml").to_dict() == found.to_dict()
    heads = run(*args[:6], *args[8:], "--method", "exact-patching").stdout  # no edges, no list
    assert " -> " not in heads


@pytest.mark.slow
def test_the_default_has_edges_and_a_set_that_is_judged_on_other_pairs(
    run, errors, tmp_path
) -> None:
    model = "planted:induction"
    args = (
        "circuit",
        model,
        "--task",
        model,
        "-n",
        6,
        "--random",
        2,
        "--set",
        "maps=attention",
        "-o",
        tmp_path,
    )
    shown = run(*args).stdout
    assert shown.splitlines()[1] == f"  {model}, verified_edges, edges: score (logits)"
    assert "smallest set: 3 nodes, 3 edges, chosen to keep 0.8, and keeps 1.00 [1.00, 1" in shown
    assert "completeness 1.00 [1.00, 1.00]" in shown
    assert "of 600 forward passes over all pairs, and " in shown
    assert "11 of 11 nodes and " in shown
    assert " edges between the set's nodes, and " in shown
    assert " others, patched one by one\n" in shown
    assert "attention at one position restored, held-out pairs: share of the gap" in shown
    folder = tmp_path / "planted-induction"
    table = pd.read_csv(folder / "edges.csv")
    assert table["in_set"].sum() == 3
    assert set(table["measured"]) == {"patched alone"}
    nodes = pd.read_csv(folder / "set.csv").set_index("node")
    assert set(nodes.index) == {"embed", "L0H3", "L1H0"}
    assert nodes["needed"].all()
    of_map = pd.read_csv(folder / "map_attention.csv").set_index(["layer", "place"])
    assert of_map.loc[(1, "end"), "share"] == pytest.approx(1, abs=0.02)
    two = run(*args[:6], "--keep", "2", "--random", 2, "--max-evaluations", 40).stdout
    assert "of 40 forward passes" in two
    told = errors(*args[:6], "--method", "codes", "--max-evaluations", 40)[1][0]
    assert "codes takes no --max-evaluations; omit it, or use verified_edges or acdc" in told


@pytest.mark.slow
@pytest.mark.parametrize("level", ["edge", "head"])
def test_screen_page_file_and_python_name_the_same_set(run, tmp_path, level) -> None:
    """Not the first heads of the ranking: the chosen nodes, MLPs included, and their edges."""
    model, name = interp.load("bundled:induction"), "bundled:induction"
    args = (
        "circuit",
        name,
        "--task",
        "induction",
        "-n",
        16,
        "--units",
        level,
        "--random",
        2,
        "-o",
        tmp_path,
    )
    screen = run(*args).stdout
    chosen = find_circuit(model, make_contrast(model, "induction", n=16), level=level).chosen
    folder = tmp_path / "bundled-induction"
    assert Circuit.from_toml(folder / "circuit.toml").chosen == chosen
    assert Circuit.from_json(folder / "circuit.json").chosen == chosen
    assert chosen.separated == (level == "edge")
    assert any(node.startswith("mlp") for node in chosen.nodes)
    # the screen: the nodes by name, and the numbers of both
    of, between = ("", "") if level == "edge" else ("all ", " between them")
    size = f"{len(chosen.nodes)} nodes, {of}{len(chosen.edges)} edges{between}"
    lines = screen.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"  chosen set: {size}; keeps"))
    assert lines[at].endswith(chosen.summary())
    assert lines[at + 1].split() == list(chosen.nodes)
    (judged,) = (line for line in lines if line.startswith(f"  smallest set: {size}, chosen"))
    figures = json.loads((folder / "evaluation.json").read_text())["figures"]
    (kept,) = (row for row in figures if row["figure"] == "faithfulness of the set")
    assert f"and keeps {kept['value']:.2f} [{kept['low']:.2f}, {kept['high']:.2f}]" in judged
    # the page: its first line, and every node and edge of its graph
    page = (folder / "circuit.html").read_text()
    told = re.search(r"<h1>(.*?)</h1>", page)[1]
    assert f"matter; {len(chosen.nodes)} nodes and {of}{len(chosen.edges)} edges between" in told
    assert f"keep {100 * kept['value']:.0f} % [{100 * kept['low']:.0f}, " in told
    graph = json.loads(re.search(r'id="circuit">(.*?)</script>', page)[1])
    assert graph["set"]["nodes"] == list(chosen.nodes)
    drawn = {tuple(graph["edges"][at][:2]) for at in graph["set"]["edges"]}
    assert drawn == set(chosen.edges)  # at the level of heads without numbers
    nodes = pd.read_csv(folder / "set.csv")["node"]
    assert nodes.tolist() == list(chosen.nodes)


def test_what_was_found_stays_when_the_evaluation_is_stopped(run, monkeypatch, tmp_path) -> None:
    def stopped(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("interp.circuits.set_evaluation.evaluate_set", stopped)
    args = ("circuit", "planted:bystander", "--task", "induction", "-n", 6, "--random", 2)
    for out in ((), ("-o", tmp_path)):
        result = run(*args, *out)
        assert result.exit_code == 130
        first, second = result.stdout.splitlines()[:2]
        said = "2 heads matter; 3 nodes and 3 edges keep 100 % [100, 100] on 3 pairs"
        assert first == f"planted:bystander: {said} not used to find them"
        assert second.startswith("  induction, verified_edges, edges")
        assert "\n  chosen set: 3 nodes, 3 edges; keeps 1.00" in result.stdout
        where = f"in {tmp_path / 'planted-bystander'}" if out else "printed above"
        said = f"interrupted in the evaluation: what was found is {where}; "
        assert said in result.stderr
    folder = tmp_path / "planted-bystander"
    assert Circuit.from_toml(folder / "circuit.toml").chosen.nodes == ("embed", "L0H3", "L1H0")
    assert {path.name for path in folder.iterdir()} == {
        "circuit.json",
        "circuit_mib.json",
        "circuit.toml",
        "circuit.graphml",
        "circuit.dot",
        "circuit.mmd",
        "circuit.svg",
        "nodes.csv",
        "edges.csv",
    }
