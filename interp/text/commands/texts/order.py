"""Command `interp texts order`: passages in the order of a model's preference for places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.value_types import ItemFile
from interp.cli.vocabulary import Spelling

if TYPE_CHECKING:
    from interp.text.context.passages import Passages


def _read(path: str) -> list[Passages]:
    from interp.text.context.passages import read_passages

    return read_passages(path)


def _chains(run: Run) -> list[Any]:
    return [each.chain(run.model) for each in run.values["chains"]]


order = command(
    "interp.text.context.order:passage_order",
    omit=("relevance",),
    inputs={"chains": Input(_chains, ("chains",))},
    options={
        "chains": Spelling(
            ("--file",),
            ItemFile(_read),
            "FILE",
            "File of passages (.jsonl) with question, answer, and sources: the numbers of the "
            "passages that hold the answer, from 0.",
        ),
        "n_random": Spelling(type=click.IntRange(1), help="Number of random orders."),
    },
    files=("order.json", "order.csv", "order.html"),
    help='A line of the file is an object such as {"passages": ["A. ", "B. ", "C. "], '
    '"question": "Which?", "answer": " B", "sources": [1]}.',
    example="interp texts order MODEL --file passages.jsonl -o results",
)
