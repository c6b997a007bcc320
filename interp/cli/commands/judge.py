"""Command `interp judge`: whether what is said of a head holds, on fresh documents."""

from __future__ import annotations

import click

from interp.cli.making import command
from interp.cli.vocabulary import Spelling

GROUP = "Look"
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
    loading=("chat",),
    example="interp judge bundled:induction L1H0=induction",
)
