"""Command `interp profile`: what every head does on a corpus, judged on unseen documents."""

from __future__ import annotations

import click

from interp.cli.making import command
from interp.cli.vocabulary import Spelling
from interp.core.declaration import split_names

GROUP = "Measure"

profile = command(
    "interp.profiles.run:profile",
    options={
        "rules": Spelling(
            type=click.STRING, metavar="NAME",
            help="A rule or detector to try, several separated by commas, or a .py file that "
            "declares a detector. Repeatable; by default all rules of the package.",
            multiple=True,
            read=lambda names: [name for text in names for name in split_names(text)] or None,
        ),
        "field": Spelling(metavar="NAME"),
        "max_length": Spelling(default=256),
    },
    files=("profile.json", "profile.parquet"),
    example="interp profile bundled:induction --corpus stories.jsonl -o results",
)  # fmt: skip
