"""The commands that compare models: what they print and write, and how they refuse bad input."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from interp import bundled
from interp.heads.between_models.result import ModelDifferences


@pytest.mark.slow
def test_compare_prints_and_writes(run, tmp_path) -> None:
    earlier = str(bundled.checkpoints("induction")[800])
    asked = ("compare", "bundled:induction", earlier, "-m", "induction,qk_norm", "--top", "2")
    shown = run(*asked, "-o", tmp_path)
    assert "p_holm" in shown.stdout
    assert "changed patterns" in shown.stdout
    [folder] = [path for path in tmp_path.iterdir() if path.is_dir()]
    names = {path.name for path in folder.iterdir()}
    assert names >= {"differences.html", "differences.parquet", "differences.csv"}
    found = ModelDifferences.load(folder / "differences.parquet")
    assert found.metrics == ("induction", "qk_norm")
    rows = json.loads(run(*asked, "--json", "-q").stdout)
    assert len(rows) == 32
    run("compare", earlier, "bundled:induction", "-m", "induction", "-o", tmp_path)
    run(*asked[:3], "-m", "induction", "-o", tmp_path)
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 3, "none replaces another"


def test_match_prints_every_head(run, tmp_path) -> None:
    earlier = str(bundled.checkpoints("induction")[800])
    shown = run(
        "compare",
        "match",
        "bundled:induction",
        earlier,
        "--random",
        "19",
        "-o",
        tmp_path,
    )
    assert shown.stdout.count("\n  L") == 16
    assert "whole assignment: p =" in shown.stdout
    assert list(tmp_path.glob("*/matches.html"))
    few = run(
        "compare",
        "match",
        "bundled:induction",
        earlier,
        "--random",
        "0",
        "--top",
        "2",
    )
    assert few.stdout.count("\n  L") == 2
    assert "14 further heads; --top 16 prints all" in few.stdout


@pytest.mark.slow
def test_curves_over_checkpoints_from_both_commands(run, tmp_path) -> None:
    shown = run(
        "compare", "checkpoints", "bundled:induction", "-m", "induction", "-o", tmp_path / "one"
    )
    assert "change after" in shown.stdout
    [table] = (tmp_path / "one").glob("*/emergence.parquet")
    assert sorted(set(pd.read_parquet(table)["step"])) == [600, 700, 750, 800, 3000]
    folders = [str(path) for step, path in bundled.checkpoints("induction").items() if step < 3000]
    shown = run("score", *folders, "-m", "induction", "--null", "none", "-o", tmp_path / "two")
    assert "curves over 4 checkpoints" in shown.stderr
    assert (tmp_path / "two" / "emergence.html").is_file()
    run("score", "bundled:induction", "bundled:one-layer", "-m", "qk_norm", "-o", tmp_path / "no")
    assert not (tmp_path / "no" / "emergence.html").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("compare", "bundled:induction", "bundled:one-layer"), "compared one by one only between"),
        (("compare", "bundled:induction", "bundled:deceive"), "different vocabularies"),
        (("compare", "match", "bundled:induction", "bundled:one-layer"), "within='model'"),
        (("compare", "checkpoints", "bundled:one-layer"), "comes without checkpoints"),
        (("compare", "checkpoints", "no-such-folder"), "is neither a folder nor a model"),
        (("compare", "bundled:induction", "bundled:induction", "--file", "no"), "cannot be"),
    ],
)
def test_bad_input_is_one_line(errors, words, line) -> None:
    code, told = errors(*words)
    assert code != 0
    assert len(told) == 1
    assert line in told[0]
