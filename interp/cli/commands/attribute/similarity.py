"""Command `interp attribute similarity`: cosine of two sentences, split over pairs of tokens."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.shared_options import model_argument, result_option
from interp.core.errors import OptionError


@click.command(
    epilog="Example: interp attribute similarity MODEL --text 'A cat sleeps.' --text 'The "
    "kitten naps.' -o pair.csv"
)
@model_argument
@click.option(
    "--text",
    "texts",
    multiple=True,
    required=True,
    metavar="TEXT",
    help="A sentence; give the option twice.",
)
@click.option(
    "--steps",
    default=20,
    show_default=True,
    type=click.IntRange(1),
    help="Number of steps of the integral; more make the residual smaller.",
)
@click.option("--baseline", default="auto", show_default=True, metavar="auto|pad|mask|mean|zero",
    help="Reference that replaces the words of each sentence.")  # fmt: skip
@click.option("--pool", default="mean", show_default=True, type=click.Choice(["mean", "first"]),
    help="Embedding of a sentence: the mean of its states, or the first one.")  # fmt: skip
@click.option("--mode", default="forward", show_default=True,
    type=click.Choice(["forward", "reverse"]),
    help="Use forward-mode derivatives per token, or one backward pass per dimension.")  # fmt: skip
@click.option("--top", default=10, show_default=True, type=click.IntRange(0), metavar="K",
    help="Number of largest pairs to print.")  # fmt: skip
@result_option()
@loading_options
def similarity(
    source: str,
    texts: tuple[str, ...],
    steps: int,
    baseline: str,
    pool: str,
    mode: str,
    top: int,
    out: Path | None,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Split the cosine of two sentences over pairs of their tokens.

    Integrated Jacobians: the parts sum to the cosine, minus what the references contribute, which
    is printed. A residual far from 0 means that the integral needs more steps.
    """
    if len(texts) != 2:
        raise OptionError(f"give --text twice, once for each sentence; {len(texts)} given")
    from interp.attribution.similarity_matrix import similarity_matrix

    model = loaded(source, loading, imports)
    found = similarity_matrix(
        model,
        *texts,
        steps=steps,
        baseline=baseline,
        pool=pool,  # type: ignore[arg-type]
        mode=mode,  # type: ignore[arg-type]
    )
    click.echo(found.top(top) if top else found)
    if out is not None:
        found.save(out)
