"""Command `interp circuit loadings`: what the output of a head is made of."""

from __future__ import annotations

from interp.cli.inputs import traced
from interp.cli.making import command
from interp.cli.value_types import TOKEN
from interp.cli.vocabulary import FROM_1, Spelling

loadings = command(
    "interp.circuits.why.loadings:head_loadings",
    omit=("features",),
    inputs={"prompts": traced("file")},
    options={
        "heads": Spelling(help="Heads to explain."),
        "file": Spelling(
            help="File with one text per line, all of one length in tokens.",
            default=None,
        ),
        "target": Spelling(type=TOKEN, metavar="TOKEN"),
        "top": Spelling(type=FROM_1),
    },
    files=("loadings.json", "loadings.csv", "loadings.html"),
    help="Attention patterns and norms are held at their values in the run; the parts sum to the "
    "effect.",
    text="interp.report.printed.circuits:loadings_text",
    example="interp circuit loadings MODEL --heads L3H1 --text 'When Mary and John' -t ' Mary'",
)
