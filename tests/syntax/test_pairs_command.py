"""`interp study trees --set pairs`: what a model loses on minimal pairs without its heads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from syntax.commanded import FEW, Run, errors

import interp
from interp.core.resources import folder


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    good = ("the dog sleeps", "many birds sing", "a lamp falls", "the girls run")
    path.write_text(
        "".join(
            json.dumps({"sentence_good": text, "sentence_bad": text.upper()}) + "\n"
            for text in good
        )
    )
    return path


def test_minimal_pairs_without_heads_are_those_of_the_python_call(
    run_trees: Run, pairs_file: Path, tmp_path: Path
) -> None:
    from interp.syntax.pairs import check_pairs, read_pairs

    want = check_pairs(
        interp.load("bundled:induction"), read_pairs(pairs_file), ["L0H3", "L1H0"], seed=5
    )
    few = (
        "bundled:induction",
        *FEW,
        "--set",
        "controls=false",
        "--seed",
        "5",
        "--set",
        f"pairs={pairs_file}",
    )
    result = run_trees(*few, "--heads", "L0H3,L1H0", "-o", tmp_path / "out")
    assert result.exit_code == 0
    told = result.stdout.splitlines()
    at = next(i for i, line in enumerate(told) if "minimal pairs" in line)
    assert "(log-likelihood, 4 pairs)" in told[at]
    assert told[at].endswith("without L0H3 L1H0")
    assert f"lost {want.drop[0]:.3g} ± {want.sem[0]:.2g}" in told[at + 1]
    [kept] = json.loads((tmp_path / "out" / "trees.json").read_text())
    assert kept["pairs"]["drop"] == want.drop[0]
    assert kept["pairs"]["random_drops"] == want.drop[1:].tolist()
    page = (tmp_path / "out" / "trees.html").read_text()
    shown = page[page.index("<h3>Minimal pairs</h3>") :]
    shown = shown[: shown.index("</table>")]
    lost = f"<td>{want.drop[0]:.3g} ± {want.sem[0]:.2g}</td>"
    assert lost in shown
    assert shown.index("L0H3 L1H0") < shown.index(lost) < shown.index(f"<td>{want.p:.2g}</td>")
    [told] = json.loads(run_trees(*few, "--json").stdout)
    assert told["pairs"] == {
        "heads": [],
        "note": "minimal pairs: no head is above its baseline; name some with --heads",
    }


def test_pairs_that_a_model_cannot_judge_leave_its_trees(
    run_trees: Run, bert_folder: Path, pairs_file: Path
) -> None:
    result = run_trees(
        bert_folder,
        *FEW,
        "--set",
        "controls=false",
        "--set",
        f"pairs={pairs_file}",
        "--heads",
        "L0H1",
    )
    assert result.exit_code == 1
    assert "maximum spanning tree" in result.stdout
    [told] = errors(result)
    assert "does not predict tokens" in told


def test_pairs_are_read_before_any_model_is_loaded(
    run_trees: Run, bert_folder: Path, pairs_file: Path, tmp_path: Path
) -> None:
    for args, line in (
        (("--heads", "L0H1"), "give the pairs"),
        (("--set", f"pairs={tmp_path / 'none.jsonl'}"), "cannot be read"),
        (
            ("--set", f"pairs={folder('data') / 'prompts.txt'}"),
            "line 1: not a JSON object with sentence_good",
        ),
    ):
        result = run_trees("bundled:induction", *FEW, *args)
        assert result.exit_code in (1, 2), args
        [told] = errors(result)
        assert line in told
