"""Command `interp circuit variables`: which heads and subspaces hold a causal variable."""

from __future__ import annotations

import click

from interp.cli.making import command
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import FROM_1, Spelling
from interp.core.declaration import split_names

HELP = """\b
FILE has lines such as
  {"base": "2 + 3 =", "source": "2 + 6 =", "base_answer": "5", "answer": "8", "variable": "second"}
\b
"answer" is what follows the base prompt if the variable had its value from the source prompt; both
prompts have the same number of tokens. "template" groups pairs, "read_at" is the position after
which the answer comes. Without FILE: induction on random tokens, with the variables "content" (the
copied token) and "pointer" (the place that it is copied from)."""

variables = command(
    "interp.circuits.variables.find:find_variables",
    options={
        "pairs": Spelling(("--file",), PromptFile(), "FILE", "File of interchanges."),
        "nodes": Spelling(
            type=click.STRING,
            metavar="PLACE,...",
            default="",
            read=lambda text: split_names(text or "") or None,
            help="Heads (L5H4), all heads of a layer (L5), what leaves it (stream5), or several "
            "together (L5H4+L6H0); by default all single ones.",
        ),
        "positions": Spelling(type=int, multiple=True, read=lambda given: [*given] or None),
        "steps": Spelling(type=FROM_1),
        "dictionary": Spelling(type=click.STRING, metavar="FOLDER"),
    },
    text="interp.report.printed.variables:variables_text",
    files=("variables.json", "variables.parquet", "variables.csv"),
    help=HELP,
    example="interp circuit variables bundled:induction --set nodes=L0,L1 -o results",
)
