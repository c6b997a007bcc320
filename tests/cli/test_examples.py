"""Every command's help ends with an example of it, whose options exist."""

from __future__ import annotations

import re
import shlex

import click
from fixtures.commands import called, flags_of
from together import over

from interp.cli.folder import leaves
from interp.cli.main import main


@over("path", [path for path, _ in leaves(main, "interp")])
def test_help_has_an_example(run, path: str) -> None:
    _, *names = path.split()
    text = " ".join(run(*names, "--help").stdout.split())
    found = re.search(r"Example: (interp .*)$", text)
    assert found, f"give {path} an epilog 'Example: {path} ...'"
    _, *words = shlex.split(found.group(1).partition(" >")[0])
    command, given = called(words)
    assert command is called(names)[0]
    assert {w for w in given if w.startswith("-")} <= flags_of(command)
    # arguments that the command needs are there
    needed = [p for p in command.params if isinstance(p, click.Argument) and p.required]
    assert len([w for w in given if not w.startswith("-")]) >= len(needed)
