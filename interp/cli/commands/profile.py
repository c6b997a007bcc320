"""Command `interp profile`: what every head does on a corpus, judged on unseen documents."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.making import command
from interp.cli.vocabulary import Spelling
from interp.core.declaration import split_names

GROUP = "Measure"
CORPUS = Spelling(
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File or folder of documents: text, .jsonl, .json, .parquet, also with .gz or .zst, or a "
    "folder of datasets. Repeatable; by default short texts that come with the package.",
    multiple=True,
    read=lambda paths: list(paths) or None,
)
RULES = Spelling(
    ("--rule",),
    click.STRING,
    "NAME",
    "A rule or detector to try, several separated by commas, or a .py file that declares a "
    "detector. Repeatable; by default all rules of the package.",
    multiple=True,
    read=lambda names: [name for text in names for name in split_names(text)] or None,
)

profile = command(
    "interp.profiles.run:profile",
    over="model",
    options={
        "corpus": CORPUS,
        "rules": RULES,
        "field": Spelling(metavar="NAME"),
        "max_length": Spelling(default=256),
    },
    files=("profile.json", "profile.parquet"),
    loading=(),
    example="interp profile bundled:induction --corpus stories.jsonl -o results",
)
