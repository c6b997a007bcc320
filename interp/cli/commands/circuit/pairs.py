"""Command `interp circuit pairs`: contrast pairs from templates or a model's own completions."""

from __future__ import annotations

import click

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import Spelling
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
