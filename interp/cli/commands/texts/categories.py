"""Command `interp texts categories`: attention of every head to the labels of a file."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.loading import Loading, import_first, loading_options, source_labels
from interp.cli.progress import Voice
from interp.cli.shared_options import models_argument
from interp.core.declaration import split_names
from interp.core.errors import OptionError


@click.command(
    epilog="Example: interp texts categories gpt2 --file en.conllu --labels NOUN,VERB -o scores.csv"
)
@models_argument
@click.option("--file", required=True, type=click.Path(path_type=Path), metavar="FILE",
    help="File of labelled words, in CoNLL-U or .jsonl.")  # fmt: skip
@click.option(
    "--labels", metavar="NAME,...", help="Score only these labels; all of the file by default."
)
@click.option(
    "--max-length", "length", default=96, show_default=True, type=click.IntRange(2), metavar="N",
    help="Maximum number of tokens of a text.",
)  # fmt: skip
@click.option(
    "--random", "draws", default=4, show_default=True, type=click.IntRange(1), metavar="N",
    help="Number of random labellings of the null: labels of other texts at the same positions.",
)  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of the random labellings.")
@click.option(
    "--batch-size", default=16, show_default=True, type=click.IntRange(1),
    help="Number of texts per forward pass; does not affect the numbers.",
)  # fmt: skip
@click.option(
    "--engine", default="auto", show_default=True,
    type=click.Choice(["auto", "stored", "streamed"]),
    help="Store attention patterns, or stream them in tiles; auto decides by size.",
)  # fmt: skip
@click.option(
    "--top", default=3, show_default=True, type=click.IntRange(0), metavar="K",
    help="Number of heads to list per label.",
)  # fmt: skip
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="File for the table: .csv, .json, .parquet or .html.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print only the table, as JSON, on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def categories(
    file: Path,
    sources: tuple[str, ...],
    labels: str | None,
    length: int,
    draws: int,
    seed: int,
    batch_size: int,
    engine: str,
    top: int,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Score the attention of every head of each MODEL to the labels of FILE.

    FILE holds labelled texts: .jsonl with spans of characters, .conllu, CoNLL-2012, columns with
    BIO tags, or source code. A score is the attention on tokens of a label, minus their share of
    the visible words; labels with groups are also scored on links between spans of a group.
    """
    from interp.cli.printing import scored_text
    from interp.core.table import HeadTable
    from interp.syntax import category_scores, read_labelled_texts

    loading.require_device()
    import_first(imports)
    if not file.exists():
        raise OptionError(f"{file} does not exist; give a file of labelled texts")
    texts = read_labelled_texts(file)
    voice = Voice.of_command(quiet=quiet)
    asked = None if labels is None else split_names(labels)
    tables = []
    for source, name in source_labels(sources, ()).items():
        with voice.bars(name) as tell:
            model = loading.load(source, name)
            tables.append(
                category_scores(
                    model, texts, asked, length=length, draws=draws, seed=seed,
                    batch_size=batch_size, engine=engine, progress=tell,
                )
            )  # fmt: skip
        left = next(iter(tables[-1].provenance.values()))["left_out"]
        if left:
            voice.note(
                f"{name}: no token in the first {length} of a text has {', '.join(left)}; raise "
                f"--max-length"
            )
        if not as_json:
            click.echo(scored_text(tables[-1], top))
    table = HeadTable.concat(tables)
    if as_json:
        click.echo(table.to_json(), nl=False)
    if out is not None:
        table.save(out)
        voice.note(str(out))
