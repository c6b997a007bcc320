"""Command `interp circuit trace`: causal tracing of facts by noise and restored activations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interp.cli.each import each_model
from interp.cli.loading import Loading, import_first, loading_options, source_labels
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument
from interp.cli.traced_prompts import aligned_table, saved_in
from interp.cli.value_types import OUT_FOLDER, PromptFile

if TYPE_CHECKING:
    from interp.circuits.causal_traces import CausalTraces

SITES = ("stream", "attention", "mlp")


@click.command(
    epilog="Example: interp circuit trace gpt2 --file facts.jsonl --site mlp --site attention"
)
@model_argument
@click.option("--file", "facts", type=PromptFile(), metavar="FILE", help="File of facts.")
@click.option("--site", "sites", multiple=True, type=click.Choice(SITES),
              help="What is restored: what enters a block, the outputs of its heads, or of its "
                   "MLP; may be given several times.  [default: all three]")  # fmt: skip
@click.option("--corrupt", default="subject", show_default=True,
              type=click.Choice(["subject", "relation"]),
              help="Tokens that noise is added to; the relation is all but the "
                   "subject.")  # fmt: skip
@click.option("--per", "by", default="role", show_default=True,
              type=click.Choice(["role", "position"]),
              help="Group positions by their place relative to the subject, or list them, for "
                   "prompts of one length.")  # fmt: skip
@click.option("--window", type=click.IntRange(1), metavar="N",
              help="Number of layers restored together.  [default: 1 for the stream, else a "
                   "fifth of the layers]")  # fmt: skip
@click.option("--sever", type=click.Choice(["attention", "mlp"]),
              help="Keep the noisy outputs of these at the restored position; with --site stream "
                   "only.")  # fmt: skip
@click.option("--noise", default=3.0, show_default=True,
              type=click.FloatRange(0, min_open=True), metavar="X",
              help="Size of the noise, in standard deviations of the subjects' "
                   "embeddings.")  # fmt: skip
@click.option("--samples", default=10, show_default=True, type=click.IntRange(2),
              help="Number of noise draws per fact.")  # fmt: skip
@click.option("-n", "limit", type=click.IntRange(1), help="Trace only the first facts.")
@click.option("--seed", default=0, show_default=True, help="Seed of the noise.")
@click.option("-o", "--out", type=OUT_FOLDER, metavar="DIR",
              help="Folder for trace_SITE.json, .csv and .html.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def trace(
    source: str, facts: Path | None, sites: tuple[str, ...], corrupt: str, by: str,
    window: int | None, sever: str | None, noise: float, samples: int, limit: int | None, seed: int,
    out: Path | None, quiet: bool, loading: Loading, imports: tuple[str, ...],
) -> None:  # fmt: skip
    """Trace where MODEL holds facts: add noise to their subjects, and restore one place at a time.

    FILE has lines {"prompt": "The Eiffel Tower is in", "subject": "Eiffel Tower"}, each
    perhaps with an "answer", or a .json list of them; without it, capitals of countries. Facts
    whose answer the model does not predict are left out.
    """
    loading.require_device()
    import_first(imports)
    voice = Voice.of_command(quiet=quiet)
    wanted = dict.fromkeys(sites or (("stream",) if sever else SITES))
    from interp.circuits.causal_tracing import causal_tracing
    from interp.circuits.facts import capitals, read_facts

    given = (capitals() if facts is None else read_facts(facts))[:limit]

    def work(source: str, model_name: str) -> None:
        with voice.bars(model_name) as tell:
            model = loading.load(source, model_name)
            for site in wanted:
                found = causal_tracing(
                    model, given, site, corrupt=corrupt, by=by, window=window, sever=sever or "",
                    noise=noise, samples=samples, seed=seed, progress=tell,
                )  # fmt: skip
                click.echo(_shown(found))  # before the next one, so that a stop keeps it
                saved_in(out, model_name, found, f"trace_{found.site}", voice)

    failed = each_model(source_labels((source,)), voice, work)
    click.get_current_context().exit(int(bool(failed)))


def _shown(found: CausalTraces) -> str:
    """Format a map: a row per layer, a column per place, gains of probability."""
    frame = found.wide()
    table = frame.pivot_table(index="layer", columns="place", values="score", sort=False)
    rows = [("layer", *map(str, table.columns))]
    rows += [
        (str(layer), *("" if math.isnan(x) else f"{x:+.3f}" for x in row))
        for layer, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    layers = f"{found.window} layers of {found.site}" if found.window > 1 else found.site
    cut = f", {found.sever} severed" if found.sever else ""
    left = f" ({found.skipped} more left out: another answer)" if found.skipped else ""
    return (
        f"{found.model}: {layers} restored{cut}, {len(found.clean)} facts{left}; noise on the"
        f" {found.corrupt} lowers the probability of the answer from {found.clean.mean():.3f} to"
        f" {found.corrupted.mean():.3f}\n{aligned_table(rows)}\n"
        f"  largest standard error {frame['sem'].max():.3f}; activations of other noise:"
        f" {frame['null'].min():+.3f} to {frame['null'].max():+.3f}"
    )
