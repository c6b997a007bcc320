"""Commands `interp compare match` and `quantised`: heads matched between models, or rounded."""

from __future__ import annotations

from typing import Any

import click

from interp.cli.between import write_comparison
from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.vocabulary import FROM_0, FROM_1, Spelling


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


def _check(run: Run) -> None:
    from interp.model.rounding_names import require_rounding

    require_rounding(run.values["method"])


quantised = command(
    "interp.heads.between_models.quantised:quantised_heads",
    options={
        "method": Spelling(
            type=click.STRING,
            metavar="NAME",
            help="int8, int4, int16 or fp8; torchao:int8, torchao:fp8, bitsandbytes:int8, "
            "bitsandbytes:nf4 or bitsandbytes:fp4.",
        ),
        "k": Spelling(type=FROM_1),
        "n_random": Spelling(type=FROM_0),
    },
    check=_check,
    files=("quantised.json", "quantised.parquet", "quantised.csv"),
    text="interp.report.printed.quantised:quantised_text",
    example="interp compare quantised bundled:stories --method int4 -o results",
)
