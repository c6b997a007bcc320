"""`interp importance verify`: top heads against random heads of their layers."""

from __future__ import annotations

import csv
import html
import io
import json

import pytest

from interp.causal.game.game import Game
from interp.core.errors import DamagedKept
from interp.core.json_document import json_document
from interp.report.checks_folder import with_others

QUICK = ("-n", "3", "--max-length", "8")


@pytest.fixture(scope="module")
def bystander_folder(small_bystander, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "by<stander"
    small_bystander.model.save_pretrained(folder)
    return folder


def test_several_metrics_in_one_command(
    run, bystander_folder, small_bystander, tmp_path, monkeypatch
) -> None:
    out = tmp_path / "out"
    args = (
        "importance",
        "verify",
        bystander_folder,
        "-m",
        "previous_token,entropy",
        "--top",
        "1",
        *QUICK,
        "-o",
        out,
    )
    result = run(*args)
    assert result.exit_code == 0, result.stderr
    layer, head = small_bystander.roles["previous_token"][0]
    assert f"previous_token: L{layer}H{head}" in result.stdout
    checked = [x.split()[:2] for x in result.stdout.splitlines() if "with all heads" in x]
    assert checked == [  # entropy has no task of its own
        ["own", "second_copy_loss"],
        ["transfer", "repeated_pairs_loss"],
        ["plain", "plain_loss"],
        ["plain", "plain_loss"],
    ]
    rows = list(csv.DictReader(io.StringIO((out / "verify.csv").read_text())))
    assert [(r["metric"], r["purpose"]) for r in rows] == [
        ("previous_token", "own"),
        ("previous_token", "transfer"),
        ("previous_token", "plain"),
        ("entropy", "plain"),
    ]
    name = f"L{layer}H{head}"
    assert f"transfer: {name} transfers: damage" in result.stdout
    assert rows[0]["transfers"].startswith(f"{name} transfers")
    assert not any(r["transfers"] for r in rows[1:])
    assert float(rows[0]["ratio"]) > 100
    assert float(rows[0]["ratio_low"]) > 50
    [document] = json.loads((out / "verify.json").read_text())
    assert len(document["checks"]) == 4
    sentence = document["conclusions"]["previous_token"]["sentence"]
    assert f"    {sentence}" in result.stdout.splitlines()
    assert {r["conclusion"] for r in rows[:3]} == {sentence}
    assert document["provenance"]["tasks"]["second_copy_loss"]["n_prompts"] == 3
    [moved] = document["checks"][0]["transfers"]
    assert (moved["head"], moved["claim"]) == (name, "step")
    page = (out / "verify.html").read_text()
    assert f"Transfer: {name} transfers" in page
    assert "<script" not in page
    assert "by<stander" not in page
    assert "by&lt;stander" in page
    assert "interp importance verify" in page
    assert html.escape(sentence, quote=False) in page

    ran = []
    whole = Game._run
    monkeypatch.setattr(Game, "_run", lambda g, t, *a: ran.append(len(t)) or whole(g, t, *a))
    again = run(*args)
    assert again.stdout == result.stdout
    assert set(ran) <= {0, 1}  # only the test that a task is not constant runs again


def test_machine_output_and_a_given_task(run, bystander_folder, small_bystander) -> None:
    result = run(
        "importance",
        "verify",
        bystander_folder,
        "-m",
        "induction",
        "--top",
        "2",
        "--task",
        "repeats",
        *QUICK,
        "--csv",
        "-q",
    )
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [r["purpose"] for r in rows] == ["given", "plain"]
    assert rows[0]["k"] == "2"
    result = run(
        "importance",
        "verify",
        bystander_folder,
        "-m",
        "entropy",
        "--top",
        "1",
        "--by",
        "lowest",
        *QUICK,
        "--json",
        "-q",
    )
    [row] = json.loads(result.stdout)
    assert row["purpose"] == "plain"


@pytest.mark.parametrize(
    ("args", "code", "line"),
    [
        (("-m", "inducton"), 2, "unknown metric 'inducton'; did you mean induction"),
        (("-m", "entropy", "--top", "9"), 1, "entropy: k=9 exceeds the 8 heads with a score"),
        (("-m", "entropy", "--top", "8"), 1, "the 8 top heads are all heads of their layers"),
        (("-m", "entropy", "--players", "layers"), 1, "players='layers'"),
        (("-m", "entropy", "--task", "nothing"), 2, "task 'nothing' is not known; give 'repeats'"),
    ],
)
def test_one_line_for_bad_input(errors, bystander_folder, args, code, line) -> None:
    got, told = errors("importance", "verify", bystander_folder, *args, *QUICK, "-q")
    assert got == code
    assert line in told[0]


@pytest.mark.parametrize("name", ["bundled:refusal", "bundled:deceive"])
def test_plain_text_longer_than_the_model_is_cut_before_it_is_checked(run, name) -> None:
    result = run("importance", "verify", name, "-m", "induction", "--top", "1", "-n", "3", "-q")
    assert result.exit_code == 0, result.stderr
    assert "plain_loss" in result.stdout
    assert "The model does not do this task" in result.stdout
    assert "least possible" in result.stdout


def test_needles_that_the_model_does_not_answer_are_no_check(run, tmp_path) -> None:
    args = (
        "importance",
        "verify",
        "bundled:one-layer",
        "-m",
        "qr_retrieval:needles=2,lengths=1,depths=2",
        "--top",
        "1",
        "-n",
        "3",
        "--random",
        "2",
    )
    result = run(*args, "-q", "-o", tmp_path)
    assert result.exit_code == 0, result.stderr
    [told] = [x for x in result.stdout.splitlines() if "answers none of 3 needles" in x]
    assert told.startswith("    Not tested: not checked on its own task")
    assert "needle_loss" not in result.stdout
    assert "answers none of 3 needles" in (tmp_path / "verify.html").read_text()
    result = run(*args, "--csv")
    assert "answers none of 3 needles" in result.stderr


def test_clean_and_ablated_values_lead(run, bystander_folder) -> None:
    result = run(
        "importance", "verify", bystander_folder, "-m", "induction", "--top", "1", *QUICK, "-q"
    )
    lines = result.stdout.splitlines()
    assert "with all heads" in lines[2]
    assert "without these" in lines[2]
    assert lines[3].strip().startswith("same layers:")
    assert lines[4].strip().startswith("any layers:")


def test_a_metric_is_needed(run, bystander_folder) -> None:
    result = run("importance", "verify", bystander_folder)
    assert result.exit_code == 2
    assert "Missing option '-m'" in result.stderr


def test_checks_of_another_version_are_set_aside(tmp_path) -> None:
    """Their rows lack columns of the page, so that they can stand beside no new ones."""
    kept = tmp_path / "verify.json"
    row = {"model": "m", "metric": "induction", "purpose": "own", "task": "copy_loss"}
    kept.write_bytes(json_document([{"provenance": {}, "checks": [row]}]))
    with pytest.warns(DamagedKept, match="another version of interp"):
        assert with_others([], kept) == []
    assert (tmp_path / "verify.json.damaged").exists()
