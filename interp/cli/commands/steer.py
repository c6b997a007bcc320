"""Command `interp steer`: dose curve of heads that are scaled or added to."""

from __future__ import annotations

import click

from interp.cli.making import command
from interp.cli.vocabulary import Spelling

GROUP = "Change"

steer = command(
    "interp.causal.steering.dose:steer",
    options={
        "n": Spelling(type=click.IntRange(4), default=32),
        "heads": Spelling(help="Heads that are steered together."),
    },
    files=("steer.json", "steer.csv", "steer.html"),
    example="interp steer bundled:induction --heads L1H0,L1H1 -o results",
)
