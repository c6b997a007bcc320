"""Tasks of a Python file: what it must define, what is held out, and that it runs once."""

from __future__ import annotations

import json
import textwrap

import pytest

from interp.causal.task_file import make_task
from interp.circuits.plan import Plan
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError, PromptError

PAIRS = """
from circuits.contrasts import induction_pairs
from interp.causal.measures import custom
from interp.circuits.contrast import ContrastTask

runs = []

def task(model):
    runs.append(1)
    pairs = induction_pairs(model, {n})
"""


@pytest.fixture
def write(tmp_path):
    def written(end: str, n: int = 12, name: str = "mine") -> str:
        path = tmp_path / f"{name}.py"
        path.write_text(PAIRS.format(n=n) + textwrap.indent(textwrap.dedent(end), "    "))
        return str(path)

    return written


def test_a_task_with_corrupted_prompts_is_found_on_and_held_out(run, write, tmp_path) -> None:
    file = write("return pairs.task")
    args = (
        "circuit",
        "planted:induction",
        "--task",
        file,
        "--method",
        "exact-patching",
        "--random",
        2,
    )
    result = run(*args, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert "  mine, exact_patching, heads: score (logits)" in result.stdout
    assert "on 4 other pairs" in result.stdout
    told = json.loads((tmp_path / "out/planted-induction/evaluation.json").read_text())["made"]
    used, fresh = told["template_names"], told["evaluated_on"]["template_names"]
    assert (len(used), len(fresh), set(used) & set(fresh)) == (8, 4, set())
    saved = tmp_path / "out/planted-induction/circuit.toml"
    again = run(*args, "--load", saved, "--seed", 5, "-o", tmp_path / "again")
    assert again.exit_code == 0, again.stderr
    told = json.loads((tmp_path / "again/planted-induction/evaluation.json").read_text())["made"]
    assert told["evaluated_on"]["template_names"] == fresh


def test_a_metric_of_ones_own_and_templates_of_ones_own(planted_induction, write) -> None:
    """A ContrastTask keeps its templates, of which one is held out, and its own function."""
    file = write(
        """
        own = custom(model, pairs.clean, lambda logits, i: logits[-1].max() * 2, name="twice",
                     unit="twos", higher_is_better=True, corrupted=pairs.corrupted)
        return ContrastTask(own, pairs.roles, tuple("ab"[i % 2] for i in range(len(pairs))))
        """
    )
    plan = Plan(file, 64, 0)
    mine, fresh = plan.pairs(planted_induction), plan.fresh(planted_induction)
    assert (len(mine), len(fresh)) == (6, 6)
    assert len(set(mine.templates)) == len(set(fresh.templates)) == 1
    assert {*mine.templates, *fresh.templates} == {"a", "b"}
    assert mine.task.unit == "twos"
    assert mine.name == "mine"
    largest = 2 * planted_induction.run(mine.clean.ids[:1])[0, -1].max()
    assert mine.values(planted_induction)[0][0] == pytest.approx(float(largest.detach()), rel=1e-5)


def test_a_file_runs_once(planted_induction, write, monkeypatch) -> None:
    """Both halves are of one set of pairs, also where a file draws other ones every time."""
    import sys

    file = write("return pairs.task")
    plan = Plan(file, 64, 0)
    assert len(plan.pairs(planted_induction)) > len(plan.fresh(planted_induction)) > 0
    assert sys.modules["interp_task_mine"].runs == [1]


def test_a_python_file_may_be_asked_for_by_pair(planted_induction, write) -> None:
    file = write("return pairs.task")
    whole = make_contrast(planted_induction, file)
    assert make_contrast(planted_induction, file, templates=[7, 2]).clean.ids == (
        whole.clean.ids[7],
        whole.clean.ids[2],
    )


def test_the_task_loader_takes_the_clean_side_of_a_contrast(planted_induction, write) -> None:
    assert (
        make_task(planted_induction, write("return pairs")).prompts
        == make_contrast(planted_induction, write("return pairs.task", name="other")).clean
    )


def test_the_number_of_prompts_of_such_a_file_is_its_own(planted_induction, write) -> None:
    file = write("return pairs")
    for given in ({"n": 2}, {"max_length": 4}):
        with pytest.raises(OptionError, match=f"makes its own prompts, so {next(iter(given))}"):
            make_task(planted_induction, file, **given)


def test_what_such_a_file_must_define(errors, planted_induction, write, tmp_path) -> None:
    from interp.causal.text_tasks import repeats_task

    bare = tmp_path / "bare.py"
    bare.write_text("x = 1\n")
    cases = (
        (bare, "has no function task(model)"),
        (write("return 3", name="a"), "returned int; for a circuit it must return a"),
        (write("return 1 / 0", name="b"), "line 11: ZeroDivisionError"),
        (
            write(
                "from dataclasses import replace\nreturn replace(pairs.task, corrupted=None)",
                name="c",
            ),
            "returned a Task without corrupted prompts; a circuit is found by comparing every "
            "prompt",
        ),
        (write("return pairs.task", n=3, name="d"), "has 3 pairs; 4 are enough to look"),
        (tmp_path / "none.py", "cannot be read"),
        (tmp_path / "none.txt", "from a .py file whose function task(model)"),
        (tmp_path / "none.csv", "with the fields prompt, corrupted, answer, wrong"),
    )
    for file, told in cases:
        code, said = errors("circuit", "planted:induction", "--task", file, "--random", 2)
        assert (code in (1, 2), len(said)) == (True, 1), told
        assert told in said[0]
    assert repeats_task(planted_induction).corrupted is None
    with pytest.raises((OptionError, PromptError)):
        make_contrast(planted_induction, str(bare))
