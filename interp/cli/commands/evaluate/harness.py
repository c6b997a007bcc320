"""Command `interp evaluate harness`: tasks of lm-evaluation-harness, with and without heads."""

from __future__ import annotations

import click

from interp.cli.making import command
from interp.cli.vocabulary import Spelling

harness = command(
    "interp.causal.harness.scores:harness_scores",
    omit=("edits",),
    options={
        "tasks": Spelling(
            ("--task",),
            click.STRING,
            "NAME|FILE",
            "Task: a name of `lm-eval ls tasks`, a .yaml of the harness, or a file: .jsonl with "
            "prompt, answer and wrong, or with sentence_good and sentence_bad; .txt for "
            "perplexity. Repeatable.",
            multiple=True,
            read=list,
        ),
        "heads": Spelling(help="Heads whose output is zero in the run `without`."),
        "n": Spelling(help="First documents of each task; by default all."),
        "n_random": Spelling(
            help="Random sets of as many heads of the same layers, the null of `without`."
        ),
    },
    files=("harness.json", "harness.csv", "harness.html"),
    example="interp evaluate harness gpt2 --task pairs.jsonl --heads L5H1,L6H9 -o results",
)
