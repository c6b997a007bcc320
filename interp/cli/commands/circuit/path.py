"""Command `interp circuit path`: effects of nodes on a task through named routes."""

from __future__ import annotations

import click

from interp.cli.inputs import CONTRAST
from interp.cli.making import command
from interp.cli.vocabulary import Spelling

path = command(
    "interp.circuits.path_patching:path_patching",
    text="interp.report.printed.circuits:path_text",
    omit=("resume",),
    inputs={"task": CONTRAST},
    options={
        "task": Spelling(default="induction", help="A task of `interp circuit --list`, or a file."),
        "n": Spelling(type=click.IntRange(4), default=64, help="Number of pairs."),
        "routes": Spelling(
            help="A route such as '2.1>4.3.q>logits': a node (2.1, mlp0, embed, or * for each), "
            "then the inputs that read it; + joins several. May be given several times; quote it, "
            "because of the shell.",
        ),
    },
    out="file",
    example="interp circuit path bundled:induction --task induction --route '*>1.0.k'",
)
