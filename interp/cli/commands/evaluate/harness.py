"""Command `interp evaluate harness`: tasks of lm-evaluation-harness, with and without heads."""

from __future__ import annotations

import click

from interp.cli.making import command
from interp.cli.vocabulary import FROM_0, Spelling

harness = command(
    "interp.causal.harness.scores:harness_scores",
    arguments=("tasks",),
    omit=("edits",),
    options={
        "tasks": Spelling(type=click.STRING, metavar="TASK...", multiple=True, read=list),
        "heads": Spelling(help="Heads whose output is zero in the run `without`."),
        "n": Spelling(help="First documents of each task; by default all."),
        "n_shot": Spelling(type=FROM_0),
        "n_random": Spelling(help="Random sets of as many other heads, the null of `without`."),
    },
    files=("harness.json", "harness.csv", "harness.html"),
    help="TASK is a name of `lm-eval ls tasks`, a .yaml of the harness, or a file: .jsonl with the "
    "fields prompt, answer and wrong, or sentence_good and sentence_bad; .txt for perplexity.",
    example="interp evaluate harness gpt2 pairs.jsonl --heads L5H1,L6H9 -o results",
)
