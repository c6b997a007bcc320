"""`interp texts anchors`, `sources` and `graph`: what they print and write."""

from __future__ import annotations

import json

import networkx as nx

MODEL = "planted:induction"


def test_anchors_of_planted_chains(run, tmp_path) -> None:
    done = run(
        "texts",
        "anchors",
        MODEL,
        "--method",
        "suppression",
        "--top",
        "3",
        "-o",
        tmp_path,
        "-q",
    )
    assert "Receiver heads of planted:induction on 3 texts" in done.stdout
    answer = done.stdout.partition("suppression_answer (nats):")[2].splitlines()[2:5]
    assert all(float(line.split()[3]) > 9 for line in answer)
    assert "Planted links: in " in done.stdout
    [folder] = [p for p in tmp_path.iterdir() if p.is_dir()]
    ends = ("json", "csv", "csv.provenance.json", "html")
    assert {f"{stem}.{end}" for stem in ("anchors", "receivers") for end in ends} == {
        p.name for p in folder.iterdir()
    }


def test_sources_of_planted_documents(run) -> None:
    done = run(
        "texts",
        "sources",
        MODEL,
        "--method",
        "heads",
        "--method",
        "leave_one_out",
        "--set",
        "n_documents=6",
        "-q",
    )
    lines = [line.split() for line in done.stdout.splitlines()[1:]]
    precision = {words[0]: words[1] for words in lines}
    assert precision["heads"] == precision["leave_one_out"] == "1.00"
    rows = run(
        "texts", "sources", MODEL, "--method", "heads", "--set", "n_documents=4", "--json", "-q"
    ).stdout
    assert {r["metric"] for r in json.loads(rows)} == {"heads", "position"}


def test_an_attention_graph_is_written(run, errors, tmp_path) -> None:
    done = run(
        "texts",
        "graph",
        MODEL,
        "--heads",
        "L1H0",
        "--set",
        "threshold=row:1",
        "--random",
        "5",
        "--top",
        "2",
        "-o",
        tmp_path,
        "-q",
    )
    assert "1 component" in done.stdout
    [folder] = [p for p in tmp_path.iterdir() if p.is_dir()]
    assert nx.read_graphml(folder / "graph.graphml").number_of_edges() == 47
    code, [told] = errors("texts", "graph", MODEL, "--set", "threshold=tea:1")
    assert code
    assert "threshold" in told
    code, [told] = errors("texts", "anchors", MODEL, "--file", __file__)
    assert "has no tokenizer" in told
