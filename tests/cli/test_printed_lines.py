"""Commands that the package prints: made in one place, as declared, and pasted by a test."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
from pathlib import Path

import click
import numpy as np
import pytest
from fixtures.commands import called, flags_of

import interp
from interp import bundled
from interp.cli.main import main
from interp.core.shell_line import shell_line

PACKAGE = Path(interp.__file__).parent
COMMANDS = "|".join(sorted(main.commands))
TYPED_BY_HAND = re.compile(rf"\binterp (?:{COMMANDS})\b[^`;:,)\n]*\{{\}}")


def test_a_line_is_quoted_for_a_shell() -> None:
    words = ("view", "my model", "--text", "it's; rm -rf *", "-o", Path("-page.html"))
    line = shell_line(*words)
    assert shlex.split(line) == ["interp", *map(str, words[:-1]), "./-page.html"]


def nodes_of(path: Path, words: str) -> list[ast.AST]:
    """Return the syntax of a file in which words stand."""
    text = path.read_text(encoding="utf-8")
    return [*ast.walk(ast.parse(text))] if words in text else []


def calls(path: Path) -> list[ast.Call]:
    """Return the calls of `shell_line` in a file whose words are not all those of a user."""
    found = [x for x in nodes_of(path, "shell_line") if isinstance(x, ast.Call)]
    named = [x for x in found if isinstance(x.func, ast.Name) and x.func.id == "shell_line"]
    return [x for x in named if isinstance(x.args[0], ast.Constant)]


def words_of(call: ast.Call) -> list[str]:
    """Return the words of a call, values that are not known here as VALUE; starred ones are out."""
    plain = [x for x in call.args if not isinstance(x, ast.Starred)]
    return [str(x.value) if isinstance(x, ast.Constant) else "VALUE" for x in plain]


def test_every_line_is_a_command_as_it_is_declared() -> None:
    made = {
        f"{p.relative_to(PACKAGE)}:{c.lineno}": c for p in PACKAGE.rglob("*.py") for c in calls(p)
    }
    assert len(made) > 8
    wrong = []
    for place, call in made.items():
        command, words = called(words_of(call))
        if unknown := {w for w in words if w.startswith("-")} - flags_of(command):
            wrong.append(f"{place}: {unknown}")
        try:
            command.make_context("interp", list(words), resilient_parsing=True)
        except click.UsageError as error:
            wrong.append(f"{place}: {error.format_message()}")
        given = [
            w
            for at, w in enumerate(words)
            if not w.startswith("-") and not (at and words[at - 1].startswith("-"))
        ]
        needed = [p for p in command.params if isinstance(p, click.Argument) and p.required]
        if len(given) < len(needed):
            wrong.append(f"{place}: {len(given)} of {len(needed)} arguments")
    assert wrong == []


def test_no_other_place_makes_a_command_with_values() -> None:
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in nodes_of(path, "interp "):
            if isinstance(node, ast.JoinedStr):
                parts = [x.value if isinstance(x, ast.Constant) else "{}" for x in node.values]
                if TYPED_BY_HAND.search("".join(map(str, parts))):
                    found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    for path in PACKAGE.rglob("*.js"):
        text = path.read_text(encoding="utf-8").replace("${", "{}")
        found += [f"{path.name}: {x}" for x in TYPED_BY_HAND.findall(text)]
    assert found == []


@pytest.fixture
def spaced_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model in a folder whose path is not its name and has a space."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(bundled.path("induction"), tmp_path / "models" / "my model")
    return "models/my model"


def test_the_next_lines_of_a_head_are_pasted(run, spaced_model: str) -> None:
    words = "dog cat boy girl man bird fish tree ball park sun house saw the near and".split()  # noqa: SIM905
    draw = np.random.default_rng(0)
    rows = [{"text": " ".join(draw.choice(words, 30))} for _ in range(12)]
    Path("stories.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    shown = run("head", spaced_model, "L1H0", "--corpus", "stories.jsonl")
    assert shown.exit_code == 0, shown.output
    lines = [x.strip() for x in shown.stdout.splitlines() if x.strip().startswith("interp ")]
    assert len(lines) == 2
    for line in lines:
        _, *words = shlex.split(line)
        pasted = run(*words, "-q")
        assert pasted.exit_code == 0, (line, pasted.output)
    assert Path("view.html").is_file()


def test_the_hints_of_results_are_pasted(run, errors, spaced_model: str) -> None:
    """A line of an error is found in it, its MODEL filled in, and then the first command works."""
    for refused, filled in (
        (("results", "show", "my results"), ("-m", "induction", "--random", "1")),
        (("head", spaced_model, "L1H0", "--load", "models"), ()),
    ):
        [error] = errors(*refused)[1]
        line = error[error.index("interp ") :]
        _, *words = shlex.split(line.replace("MODEL", shlex.quote(spaced_model)))
        command, rest = called(words)
        assert {w for w in rest if w.startswith("-")} <= flags_of(command)
        if filled:
            assert run(*words, *filled, "-q").exit_code == 0, line
            assert run(*refused).exit_code == 0


def test_the_line_on_a_page_makes_the_page_again(run, spaced_model: str) -> None:
    asked = (
        "importance",
        "ablate",
        spaced_model,
        "-n",
        "4",
        "--null",
        "none",
        "-o",
        "my out",
        "-q",
    )
    assert run(*asked).exit_code == 0
    page = Path("my out/ablate.html").read_text(encoding="utf-8")
    line = shlex.join(["interp", *asked])
    assert line.replace("'", "&#39;") in page or line in page
