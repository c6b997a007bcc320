"""The command `interp cache`: plans, cards, sources, exports, and how it refuses bad input."""

from __future__ import annotations

import json

import pytest

from interp.cache.plan_result import CachePlan


def test_a_plan_is_printed_written_and_exported(run, tmp_path) -> None:
    out, patterns = tmp_path / "results", tmp_path / "patterns"
    shown = run(
        "cache",
        "planted:induction",
        "--budget",
        "80%",
        "--save",
        patterns,
        "-o",
        out,
        "-q",
    )
    assert "with probability 0.95" in shown.stdout
    assert "decoder 1" in shown.stdout
    [file] = out.glob("*/plan.json")
    assert CachePlan.load(file).bytes <= 0.8 * CachePlan.load(file).full_bytes
    assert {p.name for p in patterns.iterdir()} == {"config.json", "full_attention_heads.tsv"}
    # one window for all, at most a quarter of 49 tokens; theirs does not count the current token
    assert json.loads((patterns / "config.json").read_text())["recent_size"] == 7
    assert "planted" in next(out.glob("*/plan.html")).read_text()


@pytest.mark.slow
def test_cards_and_methods_are_printed(run) -> None:
    shown = run("cache", "planted:induction", "-q").stdout
    for words in ("loss of a cache of 4+4 tokens", "trained", "rank agreement", "stability"):
        assert words in shown


@pytest.mark.slow
def test_rows_as_json(run) -> None:
    shown = run("cache", "planted:induction", "--max-loss", "0.05", "--json", "-q")
    rows = json.loads(shown.stdout)
    assert {row["unit"] for row in rows} == {"tokens"}
    assert len(rows) == 4


def test_sources_are_printed(run) -> None:
    shown = run("cache", "planted:induction", "--set", "sources_of", "-q").stdout
    assert "citation" in shown
    assert "random order" in shown


def test_bad_input(run, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    three = tmp_path / "three.jsonl"
    three.write_text("".join(f'{{"tokens": [{i}, 6, 7, 8, 9, 6, 7, 8]}}\n' for i in range(3)))
    for asked, words in (
        (("--budget", "1"), "too small"),
        (("--budget", "many"), "is not a size"),
        (("--budget", "50%", "--max-loss", "1"), "give one of --budget and --max-loss"),
        (("--set", "sources_of", "--budget", "50%"), "sources_of makes no plan"),
        (("--budget", "50%", "--file", three), "or a lower level"),
        (("--save", tmp_path, "--set", "format=budgets"), "layout duo only"),
        (("--budget", "50%", "--save", tmp_path / "file" / "x"), "file"),
        (("--against", tmp_path / "nowhere"), "nowhere"),
    ):
        shown = run("cache", "planted:induction", *asked, "-q")
        assert shown.exit_code != 0, asked
        assert words in shown.stderr, asked
