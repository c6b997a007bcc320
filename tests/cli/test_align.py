"""Command `interp study align`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json

import pytest

from interp.alignment import made_sentence_pairs
from interp.alignment.result import HeadAlignments
from interp.core.result_rows import ResultRows

MODEL, FOLDER = "bundled:reorder", "bundled-reorder"


@pytest.fixture
def pair_file(tmp_path):
    """A file of eight made pairs."""
    path = tmp_path / "pairs.jsonl"
    rows = []
    for pair in made_sentence_pairs(8, seed=4):
        links = " ".join(f"{s}-{t}" for s, t in sorted(pair.sure or ()))
        rows.append({"source": pair.source, "target": pair.target, "alignment": links})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_words_with_a_picture(run, pair_file, tmp_path) -> None:
    out, picture = tmp_path / "out", tmp_path / "pair.html"
    done = run(
        "study",
        "align",
        MODEL,
        "--file",
        pair_file,
        "--set",
        "pair=2",
        "--set",
        f"picture={picture}",
        "-o",
        out,
        "-q",
    )
    assert done.exit_code == 0, done.output
    assert "chosen on 4 others: L1H" in done.stdout
    assert "alignment error rate 0.000" in done.stdout
    found = HeadAlignments.load(out / FOLDER / "alignment.json")
    assert len(found) == 8
    assert found.best_head().score[0] == 0.0
    page = picture.read_text(encoding="utf-8")
    assert all(word in page for word in made_sentence_pairs(8, seed=4)[2].target.split())
    assert page.count("<svg") >= 2


def test_heads_and_lens(run, pair_file, tmp_path) -> None:
    out = tmp_path / "out"
    done = run("study", "align", MODEL, "--file", pair_file, "-m", "heads", "-o", out, "-q")
    assert done.exit_code == 0, done.output
    assert "Spearman" in done.stdout
    assert len(ResultRows.load(out / FOLDER / "translation_heads.json")) == 12
    done = run("study", "align", MODEL, "-n", 8, "-m", "decoder-lens", "-o", out, "-q")
    assert done.exit_code == 0, done.output
    assert "layer 1" in done.stdout
    assert len(ResultRows.load(out / FOLDER / "decoder_lens.json")) == 3


@pytest.mark.slow
def test_the_atlas_shows_what_was_measured(run, pair_file, tmp_path) -> None:
    out = tmp_path / "out"
    run("score", MODEL, "-m", "entropy", "--null", "none", "-o", out, "-q")
    for measure in ("words", "heads"):
        run("study", "align", MODEL, "--file", pair_file, "--method", measure, "-o", out, "-q")
    done = run("atlas", out, "-o", tmp_path / "atlas.html")
    assert done.exit_code == 0, done.output
    told = (tmp_path / "atlas.html").read_text(encoding="utf-8")
    for text in (
        "Word alignment (the row that emits a word): error rate 0.000",
        "Translation: without it the loss of the target rises by",
    ):
        assert text in told, text
    assert "Word alignment by cross attention" in told


def test_it_refuses(errors, pair_file, tmp_path) -> None:
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text('{"source": "keep lamp", "target": "lampo", "alignment": "5-0"}\n')
    for args, message in (
        (
            (MODEL, "--file", wrong),
            "line 1: the link 5-0 names source word 5, but the source has the words",
        ),
        (("bundled:induction",), "give --file PAIRS.jsonl"),
        (("bundled:induction", "--file", pair_file), "has no cross attention"),
        ((MODEL, "--file", pair_file, "--set", "pair=1"), "must be given together"),
        (
            (MODEL, "--file", pair_file, "--set", "pair=9", "--set", "picture=x.html"),
            "there are 8 pairs",
        ),
        (
            (MODEL, "--file", pair_file, "--set", "pair=1", "--set", "picture=x.png"),
            "is an .html file",
        ),
    ):
        code, told = errors("study", "align", *args)
        assert code in (1, 2)
        assert message in told[0], told
