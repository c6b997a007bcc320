"""Command `interp texts categories`: attention of every head to the labels of a file."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.vocabulary import FROM_1, FROM_2, Spelling
from interp.core.declaration import split_names
from interp.core.errors import OptionError


def _require_file(run: Run) -> None:
    file = run.values["texts"]
    if not file.exists():
        raise OptionError(f"{file} does not exist; give a file of labelled texts")


def _texts(run: Run) -> object:
    from interp.syntax import read_labelled_texts

    return read_labelled_texts(run.values["texts"])


def _left_out(run: Run) -> None:
    for model, [table] in run.results:
        about = next(iter(table.provenance.values()))
        left, cut = about["left_out"], about["cut"]
        if cut:
            run.voice.note(
                f"{model.name}: {cut} texts are longer than --max-length "
                f"{run.values['max_length']}; their first tokens are read"
            )
        if left:
            run.voice.note(
                f"{model.name}: no token in the first {run.values['max_length']} of a text has "
                f"{', '.join(left)}; raise --max-length"
            )


categories = command(
    "interp.syntax.own_labels:category_scores",
    over="models",
    inputs={"texts": Input(_texts, ("texts",), _require_file)},
    options={
        "texts": Spelling(
            ("--file",),
            click.Path(path_type=Path),
            "FILE",
            "File of labelled words, in CoNLL-U or .jsonl.",
        ),
        "labels": Spelling(
            type=click.STRING, metavar="NAME,...", read=lambda given: given and split_names(given)
        ),
        "max_length": Spelling(type=FROM_2, default=96),
        "n_random": Spelling(
            type=FROM_1,
            help="Number of random labellings of the null: labels of other texts at the same "
            "positions.",
        ),
        "engine": Spelling(type=click.Choice(["auto", "stored", "streamed"])),
        "top": Spelling(help="Number of heads to list per label."),
    },
    out="file",
    after=_left_out,
    help="FILE holds labelled texts: .jsonl with spans of characters, .conllu, CoNLL-2012, columns "
    "with BIO tags, or source code.",
    example="interp texts categories gpt2 --file en.conllu --set labels=NOUN,VERB -o scores.csv",
)
