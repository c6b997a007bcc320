"""Command `interp compare corpora`: which descriptions of heads hold on other text."""

from __future__ import annotations

from typing import Any

import click

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.vocabulary import Spelling
from interp.core.declaration import split_names
from interp.core.errors import OptionError


def _named(run: Run) -> dict[str, Any]:
    """Return each corpus by the name of its file, made unique."""
    paths: dict[str, Any] = {}
    for path in run.values["corpus"] or ():
        name, again = path.name, 2
        while name in paths:
            name, again = f"{path.name} ({again})", again + 1
        paths[name] = path
    return paths or {"bundled": None}


def _check(run: Run) -> None:
    if len(run.values["corpus"] or ()) < 2 and not run.values["alter"]:
        raise OptionError(
            "give --corpus at least twice, or --set alter=first_token: a description is carried "
            "from one corpus to another"
        )


corpora = command(
    "interp.profiles.portability:portability",
    inputs={"corpora": Input(_named, ("corpus",))},
    options={
        "corpus": Spelling(help="A corpus, such as `interp profile` reads; give at least two."),
        "alter": Spelling(
            type=click.STRING,
            metavar="NAME,...",
            default="",
            read=split_names,
        ),
        "rules": Spelling(
            type=click.STRING,
            metavar="NAME,...",
            read=lambda text: split_names(text or "") or None,
        ),
        "field": Spelling(metavar="NAME"),
        "max_length": Spelling(default=256),
    },
    files=("portability.json", "portability.parquet", "portability.csv"),
    text="interp.report.printed.portability:portability_text",
    check=_check,
    example="interp compare corpora MODEL --corpus prose.jsonl --corpus code.jsonl -o results",
)
