"""Arguments that several commands have alike."""

from __future__ import annotations

import click

from interp.cli.name_types import MODEL_NAME
from interp.cli.wrong_models import checked_source, checked_sources

model_argument = click.argument("source", metavar="MODEL", type=MODEL_NAME, callback=checked_source)
models_argument = click.argument(
    "sources",
    nargs=-1,
    required=True,
    metavar="MODEL...",
    type=MODEL_NAME,
    callback=checked_sources,
)
