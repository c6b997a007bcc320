"""Command `interp attribute similarity`: the cosine of two sentences, split over their tokens."""

from __future__ import annotations

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.vocabulary import FROM_1, Spelling
from interp.core.errors import OptionError


def _two(run: Run) -> None:
    if len(run.values["first"]) != 2:
        number = len(run.values["first"])
        raise OptionError(f"give --text twice, once for each sentence; {number} given")


similarity = command(
    "interp.attribution.similarity_matrix:similarity_matrix",
    text="interp.report.printed.tables:top_text",
    omit=("batch_size",),
    inputs={
        "first": Input(lambda run: run.values["first"][0], ("first",), _two),
        "second": Input(lambda run: run.values["first"][1]),
    },
    options={
        "first": Spelling(
            ("--text",), metavar="TEXT", multiple=True, help="A sentence; give the option twice."
        ),
        "steps": Spelling(
            type=FROM_1,
            help="Number of steps of the integral; more make the residual smaller.",
        ),
    },
    out="file",
    help="The parts sum to the cosine, minus what the references contribute, which is printed. A "
    "residual far from 0 means that the integral needs more steps.",
    example="interp attribute similarity models/encoder --text 'A cat.' --text 'The kitten.' "
    "-o pair.csv",
)
