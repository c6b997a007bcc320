"""Options that several commands have alike."""

from __future__ import annotations

from collections.abc import Callable

import click

from interp.cli.name_types import ATTRIBUTION_NAMES, MODEL_NAME
from interp.cli.written import OUT_FILE
from interp.cli.wrong_models import checked_source


def model_option(what: str = "Model") -> Callable[[Callable], Callable]:
    """Return the option --model of commands whose arguments are texts; they receive `source`."""
    return click.option(
        "--model",
        "source",
        type=MODEL_NAME,
        callback=checked_source,
        required=True,
        metavar="MODEL",
        help=f"{what} to load, as for `interp score`.",
    )


def result_option(what: str = "the result") -> Callable[[Callable], Callable]:
    """Return the option --out of commands that write one result to one file."""
    return click.option(
        "-o",
        "--out",
        type=OUT_FILE,
        metavar="FILE",
        help=f"Write {what}: parquet, csv, json, toml or html, by suffix.",
    )


def methods_option(default: str, more: str = "") -> Callable[[Callable], Callable]:
    """Return the option --methods of commands that compare attribution methods."""
    return click.option(
        "-m",
        "--methods",
        type=ATTRIBUTION_NAMES,
        default=default,
        show_default=True,
        metavar="A,B:OPTION=VALUE,...",
        help=f"Methods of `interp methods`.{more}",
    )
