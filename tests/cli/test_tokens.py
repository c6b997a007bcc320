"""Command `interp attribute tokens`: ranks of tokens and the faithfulness of the measures."""

from __future__ import annotations

import json

import pandas as pd

from interp.bundled import deceive_text

MODEL = ("bundled:deceive", "-t", "she|he")


def test_ranks_and_faithfulness_are_printed_and_written(run, tmp_path) -> None:
    texts = [s.text for s in deceive_text.sentences(32_000, 5)]
    (tmp_path / "t.txt").write_text("\n".join(texts))
    data, table = tmp_path / "a.json", tmp_path / "a.csv"
    told = run(
        "attribute",
        "tokens",
        *MODEL,
        "--file",
        tmp_path / "t.txt",
        "-m",
        "ditto,token_pooling",
        "--set",
        "n_selection=2",
        "-o",
        data,
        "-o",
        table,
    )
    assert told.exit_code == 0, told.output
    assert "3 text(s)" in told.stdout
    assert "too few texts for a significant difference" in told.stdout
    frame, whole = pd.read_csv(table), json.loads(data.read_text())
    assert len(frame) == len(whole["tokens"])
    assert whole["provenance"]["chosen_on"] == 2
    head = whole["provenance"]["chosen_head"]
    assert f"{head} was chosen on the first 2" in told.stderr
    (row,) = [x for x in told.stdout.splitlines() if " so " in x and "rank of" not in x]
    assert len(row.split()) == 6  # position, token, two ranks, effect, its rank
    assert set(frame.columns) >= {f"ditto:head={head}", "token_pooling", "effect"}


def test_one_text_has_no_interval(run) -> None:
    text = "with Anna the red bird sings so"
    told = run("attribute", "tokens", *MODEL, "--text", text, "-m", "rsq")
    assert told.exit_code == 0, told.output
    assert "no interval" in told.stderr
    assert "[" not in told.stdout.partition("rank of each token")[0]


def test_bad_input(errors) -> None:
    code, [line] = errors("attribute", "tokens", *MODEL)
    assert code == 2
    assert "give --text, or --file" in line
    code, [line] = errors("attribute", "tokens", *MODEL, "--text", "so", "-m", "rsq")
    assert "needs at least 3" in line
    code, [line] = errors("attribute", "tokens", *MODEL, "--text", "a b c", "-m", "rsx")
    assert code == 2
    assert "rsq" in line
