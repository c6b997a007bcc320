"""Command `interp attribute head-weights`: heads that predict the effect of removing tokens."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.progress import Voice
from interp.cli.shared_options import RESULT_FILE, model_argument, texts_option


@click.command(
    "head-weights",
    epilog="Example: interp attribute head-weights gpt2 --file texts.txt -o weights.json",
)
@model_argument
@texts_option
@click.option("-t", "--target", metavar="TARGET",
    help="Number to explain, as for `interp evaluate faithfulness`.")  # fmt: skip
@click.option("--ablations", default=32, show_default=True, type=click.IntRange(4),
    help="Number of random sets of spans that are removed from each text.")  # fmt: skip
@click.option("--span", default=1, show_default=True, type=click.IntRange(1),
    help="Number of tokens per span.")  # fmt: skip
@click.option("--how", default="", metavar="delete|mask|mean|hide|ID",
    help="How tokens are removed; by default mask if there is a mask token, otherwise "
    "mean.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of held-out texts and of sets.")
@click.option("--top", default=8, show_default=True, type=click.IntRange(1), metavar="K",
    help="Number of heads to print.")  # fmt: skip
@click.option("-o", "--out", type=RESULT_FILE, metavar="FILE",
    help="Write the weights, for -m learned_attention:weights=FILE; json, toml, csv or "
    "parquet.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def head_weights(
    file: Path,
    source: str,
    target: str | None,
    ablations: int,
    span: int,
    how: str,
    seed: int,
    top: int,
    out: Path | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Learn a weight per head from ablations on half of the texts of FILE, and judge on the rest.

    Printed are the rank correlations of predicted and true changes on held-out texts, for the
    learned weights and for equal ones, against permuted heads; then the heads with the largest
    weights and the standard errors of these.
    """
    from interp.attribution.learned_weights import learn_head_weights

    voice = Voice.of_command(quiet=quiet)
    model = loaded(source, loading, imports)
    with voice.bars(model.name) as tell:
        found = learn_head_weights(
            model, file, target, ablations=ablations, span=span, how=how, seed=seed, tell=tell
        )
    click.echo(found.top(top))
    if out is not None:
        found.save(out)
