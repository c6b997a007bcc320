"""Command `interp evaluate plausibility`: agreement of attributions with human rationales."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.progress import Voice
from interp.cli.shared_options import methods_option, model_argument, result_option, texts_option

DEFAULT = "attn_lrp,gradient_x_input,raw_attention,occlusion:how=mean"
TITLES = {
    "token_f1": "F1 over words, as many as are marked; null: random rankings",
    "iou_f1": "F1 over spans that share at least half of their union; null: random rankings",
    "auprc": "area under precision against recall; null: random rankings",
}


@click.command(
    epilog="Example: interp evaluate plausibility MODEL --file movies/val.jsonl -t class:1"
)
@model_argument
@texts_option
@methods_option(DEFAULT)
@click.option("-t", "--target", metavar="TARGET",
    help="Number to explain, as for `interp attribute`; {label} stands for the annotated "
    "class.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of the random rankings.")
@result_option()
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def plausibility(
    file: Path,
    source: str,
    methods: str,
    target: str | None,
    seed: int,
    out: Path | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Measure how well attributions agree with the rationales of FILE, in the layout of ERASER.

    FILE has one annotation per line; documents lie beside it, in the folder docs or in docs.jsonl.
    Agreement with annotators is not faithfulness to the model: see `interp evaluate faithfulness`.
    """
    from interp.attribution.evaluation.plausibility import plausibility as measure
    from interp.attribution.evaluation.rationales import read_rationales
    from interp.attribution.named import choose_methods
    from interp.cli.means import means_table

    chosen, given = choose_methods([methods]), read_rationales(file)
    voice = Voice.of_command(quiet=quiet)
    model = loaded(source, loading, imports)
    with voice.bars(model.name) as tell:
        found = measure(model, given, chosen, target, seed=seed, tell=tell)
    click.echo(f"{len(given)} annotations")
    click.echo(means_table(found, TITLES))
    for about, note in found.notes.items():
        voice.note(f"{about}: {note}")
    if out is not None:
        found.save(out)
