"""The verdict of `interp score`, the groups of the help, and the page of `interp atlas`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from interp.cli.folder import GROUPS, OTHER, Folder
from interp.cli.main import main
from interp.core.table import HeadTable
from interp.report.printed.verdict import LINES, verdict_text

COMMANDS = main.commands.places  # type: ignore[attr-defined]


def run(*args: str) -> Result:
    return CliRunner().invoke(main, list(args), catch_exceptions=False)


@pytest.fixture(scope="module")
def scored(tmp_path_factory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("results")
    metrics = "induction,previous_token,duplicate_token"
    done = run("score", "bundled:one-layer", "-m", metrics, "-o", str(out), "-q")
    assert done.exit_code == 0, done.output
    return out, done.stdout


def test_the_verdict_comes_first_in_at_most_ten_lines(scored: tuple[Path, str]) -> None:
    lines = [line for line in scored[1].splitlines() if line]
    assert len(lines) <= LINES
    assert lines[0].startswith("bundled:one-layer: 8 heads, 3 metrics")
    assert re.search(r"No induction head: best induction L0H\d 0\.\d+ .*null 0\.\d+ ± ", lines[1])
    assert "--verbose" in lines[0]


@pytest.mark.parametrize("option", [("--verbose",), ("--top", "2"), ("--by", "score")])
def test_the_long_list_is_for_who_asks(scored: tuple[Path, str], option: tuple[str, ...]) -> None:
    metrics = "induction,previous_token,duplicate_token"
    done = run("score", "bundled:one-layer", "-m", metrics, "-o", str(scored[0]), "-q", *option)
    assert done.exit_code == 0
    said, _, listed = done.stdout.partition("\n\n")
    assert "No induction head" in said
    assert "--verbose" not in said
    assert listed.splitlines()[1].split() == ["metric", "head", "score", "null", "n"]


def test_metrics_without_a_role_are_listed() -> None:
    done = run("score", "bundled:one-layer", "-m", "qk_norm", "--null", "none", "-q")
    assert "qk_norm" in done.stdout.splitlines()[2]


def test_many_sentences_fit_in_ten_lines() -> None:
    metrics = (
        "induction",
        "previous_token",
        "duplicate_token",
        "retrieval",
        "ov_copying",
        "sink",
        "local_window",
        "refusal_projection",
        "entropy",
    )
    made = {"made_by": "test", "null": "random-init"}
    table = HeadTable.concat(
        HeadTable.from_scores(
            model="m",
            metric=metric,
            score=[[0.1, 0.2]],
            sem=0.01,
            n=4,
            null=0.1,
            null_sem=0.1,
            null_sd=0.1,
            p=0.5,
            provenance=made,
        )
        for metric in metrics
    )
    said = verdict_text(table).splitlines()
    assert len([line for line in said if line]) <= LINES
    assert sum(line.startswith("  No ") for line in said) == len(metrics) - 1


def test_without_nulls_one_line_says_that_nothing_is_claimed() -> None:
    metrics = "induction,previous_token"
    done = run("score", "bundled:one-layer", "-m", metrics, "--null", "none", "-q")
    lines = [line for line in done.stdout.splitlines() if line]
    assert len(lines) == 2
    assert "Nothing is claimed of scores without a null" in lines[1]
    assert "No induction head" not in done.stdout


def test_every_command_is_in_a_group(tmp_path: Path) -> None:
    folder = Folder(COMMANDS)
    grouped = folder.grouped()
    assert OTHER not in grouped
    assert list(grouped) == [group for group in GROUPS if group in grouped]
    assert sorted(name for names in grouped.values() for name in names) == sorted(folder)
    (tmp_path / "mine.py").write_text('"""Mine."""\n', encoding="utf-8")
    (tmp_path / "broken.py").write_text("def (\n", encoding="utf-8")
    (tmp_path / "named.py").write_text('GROUP = "Mine"\n', encoding="utf-8")
    assert Folder({tmp_path: "x"}).grouped() == {"Mine": ["named"], OTHER: ["broken", "mine"]}


def test_the_help_lists_commands_by_group() -> None:
    text = run("--help").output
    assert text.index("\nMeasure:") < text.index("\n  score ") < text.index("\nLook:")
    assert text.index("\nLook:") < text.index("\n  atlas ") < text.index("\nResults:")


def test_atlas_writes_the_page_and_its_numbers(scored: tuple[Path, str], tmp_path: Path) -> None:
    done = run("atlas", str(scored[0]), "-o", str(tmp_path / "atlas.html"))
    assert done.exit_code == 0, done.output
    assert "atlas.csv and atlas.json" in done.output
    assert "No induction head" in (tmp_path / "atlas.html").read_text(encoding="utf-8")
    assert len(HeadTable.load(tmp_path / "atlas.csv")) == 24


def test_a_model_is_scored_and_its_heads_get_examples(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run(
        "atlas",
        "bundled:one-layer",
        "-m",
        "previous_token",
        "--set",
        f"resume={tmp_path / 'kept'}",
        "-o",
        str(page),
    )
    assert done.exit_code == 0, done.output
    assert "unembedding" in page.read_text(encoding="utf-8")


def test_cards_lead_to_the_attention_of_a_model(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    asked = ("atlas", "bundled:one-layer", "-m", "previous_token", "-o", str(page))
    done = run(*asked, "--set", f"resume={tmp_path / 'kept'}")
    assert done.exit_code == 0, done.output
    view = tmp_path / "page-bundled-one-layer.html"
    assert "the attention of its heads in page-bundled-one-layer.html" in done.stderr
    written = page.read_text(encoding="utf-8")
    assert f'"views":{{"bundled-one-layer":{{"file":"{view.name}","texts":[' in written
    assert "Attention of bundled:one-layer" in view.read_text(encoding="utf-8")


def test_an_empty_folder_is_no_model(tmp_path: Path) -> None:
    (empty := tmp_path / "empty").mkdir()
    for page, told in (
        (tmp_path / "page.html", "is empty; give a folder that a command wrote with --out"),
        (tmp_path / "x" / "page.html", "is not a folder; make it first"),
    ):
        done = run("atlas", str(empty), "-o", str(page))
        assert done.exit_code == 2
        assert told in done.output
    assert list(tmp_path.iterdir()) == [empty]


def test_a_file_that_cannot_be_read_is_said_and_shown(tmp_path: Path) -> None:
    out = tmp_path / "results"
    run("score", "bundled:one-layer", "-m", "induction", "-o", str(out), "-q")
    (out / "ablate.parquet").write_bytes(b"PAR1 half")
    done = run("atlas", str(out), "-o", str(tmp_path / "page.html"))
    assert done.exit_code == 0, done.output
    assert "ablate.parquet could not be read" in done.output
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "ablate.parquet could not be read" in page
