"""Advice on the command line names options that the command has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest

import interp
from interp.cli.main import main

PACKAGE = Path(interp.__file__).parent
COMMANDS = PACKAGE / "cli" / "commands"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")
COMMAND = re.compile(r"interp\s+([a-z][a-z-]*)")
# of torchrun, of sbatch, and variables of style sheets
OTHERS = {"--help", "--nproc-per-node", "--array", "--page", "--ink"}


def options_of(command: click.Command) -> set[str]:
    found = {x for p in command.params for x in (*p.opts, *p.secondary_opts)} | {"--help"}
    for inner in getattr(command, "commands", {}).values():
        found |= options_of(inner)
    return found


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    context = click.Context(main)
    names = main.list_commands(context)
    return {name: options_of(main.get_command(context, name)) for name in names}  # type: ignore[arg-type]


def strings(path: Path) -> list[tuple[int, str]]:
    """Return the texts of a file that names options; f-strings are joined, with {} for values."""
    found = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr):
            parts = [x.value if isinstance(x, ast.Constant) else "{}" for x in node.values]
            found.append((node.lineno, "".join(map(str, parts))))
            return
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append((node.lineno, node.value))
        for child in ast.iter_child_nodes(node):
            visit(child)

    written = path.read_text(encoding="utf-8")
    if OPTION.search(written):
        visit(ast.parse(written))
    return found


def wrong(path: Path, known: dict[str, set[str]]) -> list[str]:
    """Return the options in texts of a file that the command of the text does not have."""
    own = path.stem.replace("_", "-") if path.parent == COMMANDS else None
    everywhere = set().union(*known.values()) | OTHERS
    found = []
    for line, text in strings(path):
        for option in OPTION.finditer(text):
            named = [x for x in COMMAND.findall(text[: option.start()]) if x in known]
            command = named[-1] if named else own
            allowed = known[command] | OTHERS if command in known else everywhere
            if option.group() not in allowed:
                found.append(f"{path.relative_to(PACKAGE)}:{line}: {option.group()} of {command}")
    return found


def test_every_option_that_a_text_names_is_one_of_its_command(known) -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert [x for path in files for x in wrong(path, known)] == []


def test_the_readme_and_the_guides_name_options_that_commands_have(known) -> None:
    root, found = PACKAGE.parent, []
    for path in [root / "README.md", *sorted((root / "docs" / "guides").glob("*.md"))]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for call in re.findall(r"interp [a-z][a-z-]*[^`|#\n]*", line):
                name, options = COMMAND.match(call), OPTION.findall(call)
                if name and name.group(1) in known and set(options) - known[name.group(1)]:
                    found.append(f"{path.name}:{number}: {call}")
    assert found == []


def test_a_text_that_names_another_commands_option_is_found(known, tmp_path) -> None:
    assert "--level" in known["circuit"]
    assert "--level" not in known["view"]
    path = tmp_path / "advice.py"
    path.write_text('x = f"{n} prompts: interp view MODEL --level 2"\n', encoding="utf-8")
    [(line, text)] = strings(path)
    assert (line, text) == (1, "{} prompts: interp view MODEL --level 2")
