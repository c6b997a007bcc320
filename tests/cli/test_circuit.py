"""`interp circuit`: what it prints and writes."""

from __future__ import annotations

import json

import networkx as nx
import pandas as pd

from interp.circuit.result import Circuit

FAST = ("-n", 12, "--method", "codes:codes=32,epochs=20,repeats=2,permutations=10", "--random", 4)


def test_a_circuit_in_all_its_forms(run, tmp_path) -> None:
    args = ("circuit", "induction", "planted:bystander", *FAST, "--level", "edge", "-o", tmp_path)
    result = run(*args)
    assert result.exit_code == 0
    assert result.stdout.startswith("planted:bystander\n  induction, codes, edges: score (codes)")
    assert "on 12 other pairs, others corrupted: CMD" in result.stdout
    folder = tmp_path / "planted-bystander"
    found = Circuit.from_json(folder / "circuit.json")
    assert found.made["options"]["codes"] == 32
    assert len(found.edges) == 28
    assert Circuit.from_toml(folder / "circuit.toml").to_dict() == found.to_dict()
    assert nx.read_graphml(folder / "circuit.graphml").number_of_nodes() == 8
    assert (folder / "circuit.dot").read_text().startswith("digraph")
    assert (folder / "circuit.mmd").read_text().startswith("flowchart")
    assert len(pd.read_csv(folder / "nodes.csv")) == 8
    assert pd.read_csv(folder / "evaluation.csv")["heads"].tolist() == [1, 2, 4, 8]
    page = (folder / "circuit.html").read_text()
    assert "default-src 'none'" in page
    assert "Table: controls" in page
    assert json.loads((folder / "circuit.json").read_text())["level"] == "edge"
    assert run(*args).stdout == result.stdout


def test_a_circuit_beside_a_published_one(run, errors, tmp_path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'model = "planted:bystander"\nn_layers = 2\nn_heads = 4\ntask = "induction"\n'
        'granularity = "head"\nsource = "it was built so"\n'
        "[roles]\nprevious_token = ['L0H3']\ninduction = ['L1H0']\n"
    )
    args = ("circuit", "induction", "planted:bystander", *FAST, "--truth")
    result = run(*args, own)
    assert "own.toml: AUROC" in result.stdout
    assert "of its 2 heads among the first as many" in result.stdout
    code, lines = errors(*args, "ioi_gpt2_small")
    assert code == 1
    assert "is a circuit of gpt2 (12 layers of 12 heads)" in lines[0]


def test_what_is_wrong_with_a_command(errors) -> None:
    for args, told in (
        (("inductio", "planted:bystander"), "did you mean induction"),
        (("induction", "planted:bystander", "--method", "code"), "did you mean codes"),
        (("induction", "planted:bystander", "--method", "codes:x=1"), "option of codes"),
        (("induction", "planted:bystander", "--method", "codes:epochs"), "codes:option=value"),
    ):
        code, lines = errors("circuit", *args)
        assert code in (1, 2)
        assert told in lines[0]


def test_a_model_that_does_not_do_the_task(errors) -> None:
    code, lines = errors("circuit", "induction", "planted:noise", *FAST)
    assert code == 1
    assert "does not do induction" in lines[0]
    code, lines = errors("circuit", "ioi", "bundled:induction", *FAST)
    assert "24 of 24 names" in lines[0]
