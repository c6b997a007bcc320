"""Options that several commands have alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from interp.cli.name_types import ATTRIBUTION_NAMES, MODEL_NAME
from interp.cli.value_types import PromptFile
from interp.cli.wrong_models import checked_source, checked_sources

RESULT_FILE = click.Path(path_type=Path, dir_okay=False)


model_argument = click.argument("source", metavar="MODEL", type=MODEL_NAME, callback=checked_source)
models_argument = click.argument(
    "sources",
    nargs=-1,
    required=True,
    metavar="MODEL...",
    type=MODEL_NAME,
    callback=checked_sources,
)
text_option = click.option("--text", metavar="TEXT", help="Text to analyse.")


def file_option(what: str, *, required: bool = False) -> Callable[[Callable], Callable]:
    """Return the option --file of commands that read one file of text."""
    return click.option("--file", type=PromptFile(), required=required, metavar="FILE", help=what)


texts_option = file_option("File with one text per line.", required=True)


def result_option(what: str = "the result") -> Callable[[Callable], Callable]:
    """Return the option --out of commands that write one result to one file."""
    return click.option(
        "-o",
        "--out",
        type=RESULT_FILE,
        metavar="FILE",
        help=f"Write {what}: parquet, csv, json, toml or html, by suffix.",
    )


def methods_option(default: str, more: str = "") -> Callable[[Callable], Callable]:
    """Return the option --method of commands that compare attribution methods."""
    return click.option(
        "-m",
        "--method",
        "methods",
        type=ATTRIBUTION_NAMES,
        default=default,
        show_default=True,
        metavar="A,B:OPTION=VALUE,...",
        help=f"Methods of `interp list methods`.{more}",
    )
