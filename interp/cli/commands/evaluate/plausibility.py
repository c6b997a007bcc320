"""Command `interp evaluate plausibility`: agreement of attributions with human rationales."""

from __future__ import annotations

from typing import Any

import click

from interp.cli.making import command
from interp.cli.name_types import ATTRIBUTION_NAMES
from interp.cli.run import Input, Run, say_notes
from interp.cli.vocabulary import Spelling


def _rationales(run: Run) -> Any:
    from interp.attribution.evaluation.rationales import read_rationales

    annotated = read_rationales(run.values["rationales"])
    run.voice.note(f"{len(annotated)} annotations")
    return annotated


plausibility = command(
    "interp.attribution.evaluation.plausibility:plausibility",
    inputs={"rationales": Input(_rationales, ("rationales",))},
    options={
        "rationales": Spelling(("--file",), click.Path(exists=True, dir_okay=False), "FILE"),
        "methods": Spelling(
            type=ATTRIBUTION_NAMES,
            default="attn_lrp,gradient_x_input,raw_attention,occlusion:how=mean",
        ),
        "targets": Spelling(
            help="Number to explain, as for `interp attribute`; {label} stands for the annotated "
            "class."
        ),
    },
    out="file",
    after=say_notes,
    help="FILE has one annotation per line; documents lie beside it, in the folder docs or in "
    "docs.jsonl. See `interp evaluate faithfulness` for faithfulness to the model.",
    example="interp evaluate plausibility MODEL --file movies/val.jsonl -t class:1",
)
