"""Command `interp compare quantised`: what quantising the weights does to every head."""

from __future__ import annotations

import click

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.vocabulary import FROM_0, FROM_1, Spelling


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
    example="interp compare quantised bundled:induction --method int4 -o results",
)
