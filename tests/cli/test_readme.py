"""The README shows commands that are run and code that works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from interp.core.registry import METRICS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def test_the_python_examples_run() -> None:
    examples = [text for kind, text in BLOCKS if kind == "python" and "@detector" not in text]
    names: dict = {}
    for example in examples:
        exec(compile(example, "README.md", "exec"), names)
    score = names["table"].top(1, "induction").to_pandas().iloc[0]
    assert score["score"] > 0.5
    assert names["edited"].provenance[score["model"], "induction"]["edits"] != []


def test_the_detector_shown_is_the_one_that_is_scored() -> None:
    [shown] = [text for kind, text in BLOCKS if kind == "python" and "@detector" in text]
    written = METRICS["induction"].path.read_text(encoding="utf-8")
    for line in shown.splitlines():
        if line.startswith("from interp import"):  # in the package from the file that declares it
            continue
        assert line.removesuffix('"""') in written


def test_the_ci_runs_the_commands_that_the_readme_gives() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    commands = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
    [line] = [c for c in commands if "pytest" in c]
    for command in line.split(" && "):
        words = shlex.split(command.replace(".venv", "$venv"))[-6:]
        assert all(word in script for word in words), command
    assert [c for c in commands if c.endswith(".venv/bin/interp score")]


@pytest.mark.parametrize("code", ["0 done", "2 the command was wrong", "130 interrupted"])
def test_exit_codes_are_the_same_in_help_and_readme(run, code) -> None:
    text = " ".join(run("--help").stdout.split())
    assert code in text
    assert code in " ".join(README.split())


def test_data_and_circuits_are_found() -> None:
    from interp.core import resources

    for name in ("data", "circuits"):
        assert resources.folder(name) == ROOT / name


@pytest.mark.parametrize("block", [text for kind, text in BLOCKS if kind == "console"])
def test_the_runs_shown_come_out_again(run, block) -> None:
    command, *shown = block.splitlines()
    _, *args = shlex.split(command.removeprefix("$ "))
    printed = run(*args, "--quiet").stdout.rstrip().splitlines()
    # Standard errors of almost nothing, and column widths with them, may differ by rounding.
    numbers = [
        [re.sub(r" ± \S+", "", " ".join(x.split())) for x in lines] for lines in (shown, printed)
    ]
    assert numbers[0] == numbers[1]
