"""Command `interp compare match`: heads of one model matched with those of another."""

from __future__ import annotations

from typing import Any

import click

from interp.cli.between import write_comparison
from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.vocabulary import Spelling


def _write(run: Run, results: list[Any]) -> None:
    write_comparison(run, results[0], "matches", results[0].provenance["model"])


match = command(
    "interp.heads.between_models.match:match_heads",
    over="all",
    arguments=("A", "B"),
    inputs={
        "a": Input(lambda run: run.made["models"][0]),
        "b": Input(lambda run: run.made["models"][1]),
    },
    options={
        "method": Spelling(
            type=click.Choice(["patterns", "ov", "qk"]),
            help="Similarity of two heads: their patterns on shared prompts, or their OV or QK "
            "circuits between tokens of the vocabulary.",
        ),
        "within": Spelling(
            type=click.Choice(["layer", "model"]),
            help="Match heads of the same layer, or of all layers.",
        ),
        "n_random": Spelling(
            help="Number of random splits of the heads of both models; 0 for none.", default=999
        ),
    },
    each=_write,
    example="interp compare match seed-0 seed-1 --method patterns -o results",
)
