"""Command `interp judge`: whether what is said of a head holds, on fresh documents."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.making import command
from interp.cli.vocabulary import Spelling

GROUP = "Look"
judge = command(
    "interp.profiles.judge:judge",
    arguments=("MODEL", "hypothesis"),
    omit=("head",),
    options={
        "hypothesis": Spelling(type=click.STRING, metavar="HYPOTHESIS"),
        "field": Spelling(metavar="NAME"),
        "max_length": Spelling(default=128),
        "ledger": Spelling(
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
            help="Folder of the ledgers, which record the questions about each model.",
        ),
    },
    out="file",
    loading=("chat",),
    example="interp judge bundled:induction L1H0=induction",
)
