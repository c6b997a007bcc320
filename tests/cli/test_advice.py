"""Advice on the command line names options that the command has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest
from fixtures.commands import flags_of

import interp
from interp.cli.folder import commands_in, leaves
from interp.cli.main import main

PACKAGE = Path(interp.__file__).parent
COMMANDS = PACKAGE / "cli" / "commands"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9](?![\w-])")
ENTRY = re.compile(r"\n\s*\n|\n\s+\w+: ")  # where a docstring turns to another subject
COMMAND = re.compile(r"interp((?:\s+[a-z][a-z-]*){1,2})")
# of torchrun, of sbatch, and variables of style sheets
OTHERS = {"--help", "--nproc-per-node", "--array", "--page", "--ink", "--repo-type"}


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """Options by the words of a command; by the name of a family those of its default command."""
    found = {path: flags_of(c) | {"--help"} for path, c in leaves(main, "interp")}
    found["interp"] = flags_of(main)
    for name, command in main.commands.items():
        if isinstance(command, click.Group):
            default = getattr(command, "default", "")
            found[f"interp {name}"] = found[f"interp {name} {default}"] if default else {"--help"}
    return found


def named(text: str, known: dict[str, set[str]]) -> str:
    """Return the last command that a text names, of a family the member where it is named."""
    found = ""
    for words in COMMAND.findall(text):
        first, *second = words.split()
        for path in (" ".join(["interp", first, *second]), f"interp {first}"):
            if path in known:
                found = path
                break
    return found


def strings(path: Path) -> list[tuple[int, str]]:
    """Return the texts of a file that names options; f-strings are joined, with {} for values."""
    found = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "shell_line":
            return  # tests/cli/test_printed_lines.py
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
    inside = path.is_relative_to(COMMANDS) and path.name != "__init__.py"
    family = " ".join(["interp", *path.relative_to(COMMANDS).parts[:-1]]) if inside else ""
    own = [f"{family} {name}".replace("_", "-") for name in commands_in(path)]
    everywhere = set().union(*known.values()) | OTHERS
    theirs = set().union(*(known[name] for name in own if name in known))
    found = []
    for line, text in strings(path):
        for option in OPTION.finditer(text):
            before = ENTRY.split(text[: option.start()])[-1]
            command = named(before, known)
            allowed = known[command] if command else theirs if inside else everywhere
            if option.group() not in allowed | OTHERS:
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
                command = named(call, known)
                if command and set(OPTION.findall(call)) - known[command]:
                    found.append(f"{path.name}:{number}: {call}")
    assert found == []


def test_a_text_that_names_another_commands_option_is_found(known, tmp_path) -> None:
    assert "--route" in known["interp circuit path"]
    assert "--route" not in known["interp circuit"]
    path = tmp_path / "advice.py"
    path.write_text('x = f"{n} prompts: interp circuit MODEL --route 2"\n', encoding="utf-8")
    [(line, text)] = strings(path)
    assert (line, text) == (1, "{} prompts: interp circuit MODEL --route 2")
    assert named(text, known) == "interp circuit"
    assert named("as in `interp circuit path --route`", known) == "interp circuit path"
    entries = ENTRY.split("of `interp circuit path`.\n        top: with --route")
    assert [named(entry, known) for entry in entries] == ["interp circuit path", ""]
