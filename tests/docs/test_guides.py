"""Guides say five things each, their code runs, and their commands exist."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from fixtures.commands import called, flags_of
from sampled import sampled
from together import over

from interp.circuits.tasks import TASKS
from interp.cli.folder import leaves
from interp.cli.main import main
from interp.cli.name_types import ATTRIBUTION_NAMES
from interp.cli.settings import settings_of
from interp.core.declaration import split_names
from interp.core.registry import ATTRIBUTION_METHODS, CIRCUIT_METHODS, METRICS, REGISTRIES

FOLDER = Path(__file__).parents[2] / "docs" / "guides"
GUIDES = sorted(FOLDER.glob("*.md"))
GROUPS = {*METRICS.group_names}
SAYS = ("The question", "One line", "What the number means", "When it misleads", "Source")


def blocks(path: Path, kind: str) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return [code for k, code in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL) if k == kind]


def commands(path: Path) -> list[list[str]]:
    """Every `interp ...` line of a guide's shell blocks, as words."""
    lines = [line for block in blocks(path, "sh") for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("interp ")]


@over("path", GUIDES, ids=lambda p: p.stem)
def test_it_answers_what_a_reader_asks(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    heads = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert [h for h in heads if h in SAYS] == list(SAYS)
    assert blocks(path, "python")
    assert commands(path) or "no command" in text
    assert len(text.splitlines()) < 170, "about a page"


@over("path", GUIDES, ids=lambda p: p.stem)
def test_the_declarations_it_lists_exist(path: Path) -> None:
    for _, *line in commands(path):
        words = called(line)[1]
        if line[:2] == ["list", "metrics"] and words:
            assert words[0] in METRICS
        if line[:2] == ["list", "methods"] and words:
            assert words[0] in ATTRIBUTION_METHODS


def test_options_in_the_text_exist() -> None:
    every = [command for _, command in leaves(main, "interp")]
    known = {"--help"}.union(*map(flags_of, every))
    settings = set().union(*map(settings_of, every))
    for path in GUIDES:
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"`(--[a-z-]+)", text)) <= known, path.name
        assert set(re.findall(r"--set ([a-z_]+)", text)) <= settings, path.name


def test_the_guide_to_circuits_names_every_task_and_method() -> None:
    text = (FOLDER / "circuits.md").read_text(encoding="utf-8")
    tasks = {name for name in TASKS if not TASKS[name].model}
    for name in tasks | set(CIRCUIT_METHODS):
        assert f"`{name}`" in text, name


@over("path", GUIDES, ids=lambda p: p.stem)
def test_the_metrics_and_methods_it_names_exist(path: Path) -> None:
    for _, *words in commands(path):
        for flag, value in pairwise(words):
            if flag not in ("-m", "--metric"):
                continue
            kind = next(p.type for p in called(words)[0].params if flag in p.opts)
            if isinstance(kind, click.Choice):  # tested above
                continue
            for asked in split_names(value):
                if kind is ATTRIBUTION_NAMES:
                    known = {*ATTRIBUTION_METHODS, *ATTRIBUTION_METHODS.groups}
                    assert asked.partition(":")[0] in known
                elif asked not in GROUPS and not asked.endswith(".py"):
                    METRICS.parse(asked)


def test_no_room_is_without_a_guide() -> None:
    """A new kind of declaration needs a page; this says which pages cover which."""
    covered = {
        "detector": "head_scores",
        "statistic": "head_scores",
        "measurement": "head_scores",
        "weights": "weights_and_lens",
        "experiment": "special_heads",
        "attribution": "attribution_and_flow",
        "discovery": "circuits",
    }
    assert set(covered) == {kind for known in REGISTRIES for kind in known.kinds}
    assert set(covered.values()) <= {path.stem for path in GUIDES}


@over("path", GUIDES, ids=lambda p: p.stem)
def test_what_its_code_calls_exists(path: Path) -> None:
    """Imports, and keywords of calls: of most guides only `.ci/exhaustive` runs the code."""
    names: dict[str, Any] = {}
    for node in ast.walk(ast.parse("\n".join(blocks(path, "python")))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            exec(ast.unparse(node), names)
    for node in ast.walk(ast.parse("\n".join(blocks(path, "python")))):
        if not isinstance(node, ast.Call):
            continue
        root, *below = ast.unparse(node.func).split(".")
        if root not in names or not all(word.isidentifier() for word in below):
            continue
        function = reduce(getattr, below, names[root])
        if not str(getattr(function, "__module__", "")).startswith("interp"):
            continue
        parameters = inspect.signature(function).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            assert {k.arg for k in node.keywords if k.arg} <= {*parameters}, ast.unparse(node)


@pytest.mark.parametrize(
    "path",
    sampled(p for p in GUIDES if p.stem != "agents"),  # tests/cli/test_mcp.py runs its agent
    ids=lambda p: p.stem,
)
def test_its_code_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in blocks(path, "python"):
        exec(compile(block, path.name, "exec"), names)


RUNS = [(p.stem, block) for p in GUIDES for block in blocks(p, "console")]


@pytest.mark.parametrize(("name", "block"), RUNS, ids=[name for name, _ in RUNS])
def test_the_runs_it_shows_come_out_again(name: str, block: str) -> None:
    command, *shown = block.splitlines()
    _, *args = shlex.split(command.removeprefix("$ "))
    result = CliRunner().invoke(main, [*args, "--quiet"])
    assert result.exit_code == 0, result.output
    printed = result.stdout.rstrip().splitlines()
    # Standard errors of almost nothing, and column widths with them, may differ by rounding.
    numbers = [
        [re.sub(r" ± \S+", "", " ".join(x.split())) for x in lines] for lines in (shown, printed)
    ]
    assert numbers[0] == numbers[1]


def test_the_guides_and_the_readme_show_the_planted_heads() -> None:
    assert {name for name, _ in RUNS} >= {"attribution_and_flow", "causal_importance"}
