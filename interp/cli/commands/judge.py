"""Command `interp judge`: whether what is said of heads or circuits holds, on fresh text."""

from __future__ import annotations

import click

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.vocabulary import Spelling

GROUP = "Look"


def _check(run: Run) -> None:
    from interp.profiles.hypothesis_forms import stated_hypothesis

    given, readable = run.values["hypothesis"], run.values["reader"] is not None
    run.values["hypothesis"] = stated_hypothesis(given, readable=readable)


judge = command(
    "interp.profiles.judge:judge",
    arguments=("MODEL", "hypothesis"),
    omit=("head", "questions"),
    options={
        "hypothesis": Spelling(type=click.STRING, metavar="HYPOTHESIS"),
        "reader": Spelling(("--with",), click.STRING, "ADDRESS"),
        "field": Spelling(metavar="NAME"),
        "max_length": Spelling(default=128),
    },
    out="file",
    check=_check,
    loading=("chat",),
    example="interp judge bundled:stories L2H5=previous",
)
