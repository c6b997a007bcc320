"""Every command's help ends with an example of it, whose options exist."""

from __future__ import annotations

import re
import shlex

from together import over

from interp.cli.main import main


@over("name", main.commands)
def test_help_has_an_example(run, name) -> None:
    text = " ".join(run(name, "--help").stdout.split())
    found = re.search(r"Example: (interp .*)$", text)
    assert found, f"give interp {name} an epilog 'Example: interp {name} ...'"
    _, command, *words = shlex.split(found.group(1).partition(" >")[0])
    assert command == name
    known = {flag for p in main.commands[name].params for flag in (*p.opts, *p.secondary_opts)}
    assert {w for w in words if w.startswith("-")} <= known
    # arguments that the command needs are there
    needed = [
        p for p in main.commands[name].params if p.param_type_name == "argument" and p.required
    ]
    assert len([w for w in words if not w.startswith("-")]) >= len(needed)
