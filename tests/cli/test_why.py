"""interp circuit shares, loadings and graph: what they print and write; the card in the atlas."""

from __future__ import annotations

import json

MODEL = "bundled:induction"


def test_shares_are_printed_written_and_shown_on_the_card(run, tmp_path) -> None:
    done = run(
        "circuit",
        "shares",
        MODEL,
        "--heads",
        "L1H0",
        "--position",
        "induction",
        "-n",
        "4",
        "--top",
        "2",
        "-o",
        str(tmp_path),
        "-q",
    )
    assert done.stdout.splitlines()[2].split()[:2] == ["L0H2", "L0H3"]
    assert "the terms sum to it up to rounding" in done.stdout

    from interp.report.atlas.folder import read_folder

    [folder] = [p for p in tmp_path.iterdir() if p.is_dir()]
    found = read_folder(folder)
    [part] = found.parts
    assert part.part["heads"] == ["L1H0"]
    assert "query side x key side L0H2 x L0H3" in part.notes["L1H0"]
    assert "error" not in " ".join(found.notes)


def test_a_graph_is_written_for_the_front_end(run, tmp_path) -> None:
    done = run("circuit", "graph", MODEL, "--top", "3", "-o", str(tmp_path), "-q")
    assert "AttributionGraph" in done.stdout
    [folder] = [p for p in tmp_path.iterdir() if p.is_dir()]
    document = json.loads((folder / "graph.json").read_text())
    assert document["metadata"]["scan"] == MODEL
    assert {p.name for p in folder.iterdir()} == {
        "graph.json",
        "graph.graphml",
        "graph.svg",
        "graph.html",
        "edges.csv",
        "edges.csv.provenance.json",
    }


def test_loadings_are_printed_by_writer(run) -> None:
    done = run(
        "circuit", "loadings", MODEL, "--heads", "L1H0", "--per", "writer", "--top", "2", "-q"
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("L1H0 of bundled:induction on the logit of top prediction")
    assert len(lines) == 4
