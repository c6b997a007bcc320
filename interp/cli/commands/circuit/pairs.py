"""Commands `interp circuit pairs` and `variables`: pairs of prompts, and variables from them."""

from __future__ import annotations

import click

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import FROM_1, Spelling
from interp.core.declaration import split_names
from interp.core.errors import UnknownName

FORMATS = (".jsonl", ".csv", ".parquet", ".json", ".toml", ".html")
HELP = """\b
FILE.toml has templates with slots:
  [slots]
  A = ["Anna", "Peter", "Lucy"]
  B = "A"                          # another word of the same list
  [[templates]]
  clean = "{A} and {B} were at home. {A} gave a ball to"
  corrupted = "{A} and {B} were at home. Someone gave a ball to"
  answer = " {B}"
  wrong = " {A}"
  roles = {S2 = "A:2"}             # the second {A}
FILE.jsonl has lines of {"prompt": ..., "corrupted": ...}.

Without answers, the model's own most likely tokens after the clean and after the corrupted
prompt become answer and wrong answer. Pairs whose tokens do not fit are left out, and counted
by reason."""


def _check(run: Run) -> None:
    out, file = run.out, run.values["source"]
    if out is not None and out.suffix.lower() not in FORMATS:
        raise UnknownName("file format of pairs", out.suffix or out.name, FORMATS)
    if file.suffix == ".toml":
        from interp.circuits.tasks.template_file import read_templates

        read_templates(file)  # a wrong file is reported before a model is loaded


def _fewer(run: Run) -> None:
    [(_, [made_pairs])] = run.results
    n = run.values["n"]
    if len(made_pairs) < n:
        run.voice.note(f"{len(made_pairs)} of {n} pairs; add words, templates or prompts for more")


pairs = command(
    "interp.circuits.made_pairs:make_pairs",
    options={
        "source": Spelling(("--file",), PromptFile(), "FILE", "File that describes the pairs."),
        "n": Spelling(type=click.IntRange(6), default=64, help="Number of pairs."),
    },
    out="file",
    check=_check,
    after=_fewer,
    help=HELP,
    example="interp circuit pairs gpt2 --file gave.toml -n 64 --set only=preferred -o gave.jsonl",
)


VARIABLES_HELP = """\b
FILE has lines such as
  {"base": "2 + 3 =", "source": "2 + 6 =", "base_answer": "5", "answer": "8", "variable": "second"}
\b
"answer" is what follows the base prompt if the variable had its value from the source prompt; both
prompts have the same number of tokens. "template" groups pairs, "read_at" is the position after
which the answer comes. Without FILE: of bundled:stories who has a thing that one person gave
another, with the variables "name" (that of the receiver) and "mention" (which of the two it is); of
other models induction on random tokens, with "content" (the copied token) and "pointer" (the place
that it is copied from)."""

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
    help=VARIABLES_HELP,
    example="interp circuit variables bundled:induction --set nodes=L0,L1 -o results",
)
