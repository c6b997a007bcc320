"""Command `interp evaluate sanity`: whether attributions depend on the weights, and their cost."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.progress import Voice
from interp.cli.shared_options import methods_option, model_argument, texts_option
from interp.cli.value_types import OUT_FOLDER, PromptFile

DEFAULT = "attn_lrp,gradient_x_input,raw_attention,rollout,input_norm"
TITLES = {
    "rank correlation": "of |score| with that of the unchanged model, as weights are randomised "
    "from the last layer down; null: random rankings",
    "forward passes": "of the model per text",
    "backward passes": "of the model per text",
    "seconds": "per text, on this machine",
    "accuracy": "of a refitted read-out after the top tokens are removed (lower is better); null: "
    "random tokens removed",
}


@click.command(epilog="Example: interp evaluate sanity gpt2 --file texts.txt -m attn_lrp,rollout")
@model_argument
@texts_option
@methods_option(DEFAULT)
@click.option("-t", "--target", metavar="TARGET",
    help="Number to explain, as for `interp evaluate faithfulness`.")  # fmt: skip
@click.option("--classes", "labels", type=PromptFile(), metavar="FILE",
    help="File with the class of each text: also refit a read-out after the top tokens are "
    "removed (ROAR without training the model again).")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of all random draws.")
@click.option("-o", "--out", type=OUT_FOLDER, metavar="DIR", help="Folder for JSON files.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def sanity(
    file: Path,
    source: str,
    methods: str,
    target: str | None,
    labels: Path | None,
    seed: int,
    out: Path | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Check attribution methods over the texts of FILE (one per line), and measure their cost.

    The weights are randomised block by block from the last one down: scores that keep their order
    do not depend on what the model learned. Passes and seconds are counted per text.
    """
    from interp.attribution.evaluation.cost import method_cost
    from interp.attribution.evaluation.randomisation import randomisation_check
    from interp.attribution.evaluation.refit import refit_check
    from interp.attribution.evaluation.run import read_texts
    from interp.attribution.named import choose_methods
    from interp.cli.means import means_table

    chosen, texts = choose_methods([methods]), read_texts(file)
    classes = None if labels is None else read_texts(labels)
    voice = Voice.of_command(quiet=quiet)
    model = loaded(source, loading, imports)
    with voice.bars(model.name) as tell:
        found = {
            "randomisation": randomisation_check(
                model, texts, chosen, target, seed=seed, tell=tell
            ),
            "cost": method_cost(model, texts, chosen, target),
        }
        if classes is not None:
            found["refit"] = refit_check(
                model, texts, classes, chosen, target, seed=seed, tell=tell
            )
    for name, one in found.items():
        click.echo(means_table(one, TITLES))
        for about, note in one.notes.items():
            voice.note(f"{about}: {note:.3g}" if isinstance(note, float) else f"{about}: {note}")
        if out is not None:
            one.save(Path(out) / f"{name}.json")
