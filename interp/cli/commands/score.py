"""Command `interp score`: scores of every head of every model, with errors and null baselines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from interp.cli.config import config_option
from interp.cli.loading import (
    Loading,
    device_map_option,
    import_first,
    loading_options,
    remote_option,
    source_labels,
    source_option,
    tp_plan_option,
)
from interp.cli.name_types import METRIC_NAMES, MODEL_NAME
from interp.cli.picture_prompts import PicturePrompts, picture_options
from interp.cli.value_types import OUT_FOLDER, PromptFile
from interp.cli.wrapping import say
from interp.cli.wrong_models import checked_sources
from interp.core.errors import OptionError
from interp.core.order import BY
from interp.core.shards import Shard
from interp.model.random_weights import DRAWS

DEFAULT_OUT = Path("results")

GROUP = "Measure"


@click.command(
    epilog="Example: interp score gpt2 bundled:induction -m induction,entropy -o results"
)
@click.argument(
    "sources", nargs=-1, metavar="[MODEL]...", type=MODEL_NAME, callback=checked_sources
)
@click.option(
    "-m",
    "--metric",
    "metrics",
    type=METRIC_NAMES,
    multiple=True,
    metavar="NAME[:OPTION=VALUE,...]",
    help="A metric, several separated by commas, a group (detectors, weights, geometry, "
    "categories, cache, cross, segments, experiments, roles), 'all', or a .py file that declares "
    "one. Repeatable; "
    "detectors and weights by default.",
)
@click.option(
    "-o",
    "--out",
    type=OUT_FOLDER,
    metavar="DIR",
    help="Folder for results: one file per model and metric, table.parquet, table.csv, "
    "heads.html. The same command resumes an interrupted run. Without it results are only "
    "printed, or stored in ./results if no model is named.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Name of a model in the results, in place of its folder's; one for each MODEL, in order.",
)
@click.option(
    "--file",
    "prompt_file",
    type=PromptFile(),
    metavar="FILE",
    help='File of prompts, one per line, or .jsonl with {"prompt": ..., "cluster": ...} per line '
    "(errors are over clusters); with --max-length, the beginning of the file is one prompt.",
)
@picture_options
@click.option(
    "--max-length",
    "context",
    type=click.IntRange(2),
    metavar="N",
    help="Number of tokens: the first N of --file, or up to N per random prompt.",
)
@click.option(
    "--null",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "shuffled-tokens", "random-init", "none"]),
    help="Null baseline: auto shuffles tokens for metrics that read them and uses random weights "
    "for the rest.",
)
@click.option(
    "--null-draws",
    default=DRAWS,
    show_default=True,
    type=click.IntRange(1),
    help="Number of draws of random weights: the null is their mean, and with three or more they "
    "give the p-value of each head.",
)
@click.option(
    "--null-cache/--no-null-cache",
    default=True,
    show_default=True,
    help="Keep the scores of random weights in interp/nulls of $XDG_CACHE_HOME (or of ~/.cache), "
    "and with --out also in DIR/nulls, and use those that are kept there. The weights "
    "themselves are not kept.",
)
@click.option(
    "--seed", default=0, show_default=True, help="Seed of prompts, shuffling and random weights."
)
@click.option(
    "--batch-size",
    default=16,
    show_default=True,
    type=click.IntRange(1),
    help="Prompts per forward pass; does not affect the numbers.",
)
@click.option(
    "--engine",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "stored", "streamed", "fused"]),
    help="Store attention patterns, or stream them in tiles. Fused streams in a single pass in "
    "place of the model's own kernel: fastest, but exact only up to float rounding. Auto stores "
    "small patterns, fuses on the CPU where the model allows it, and else decides by size.",
)
@click.option(
    "--top",
    default=3,
    show_default=True,
    type=click.IntRange(0),
    metavar="K",
    help="Number of heads to list per metric; implies --verbose.",
)
@click.option(
    "--by",
    default="end",
    show_default=True,
    type=click.Choice(BY),
    help="Order of the listed heads; implies --verbose: 'end' as the metric declares it (the "
    "highest first, the lowest, or both ends of a signed metric), or by the highest score, the "
    "largest absolute value, the distance from the null, or the lowest score.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="After what was found, list the first heads of every metric.",
)
@click.option(
    "--by-cluster",
    is_flag=True,
    help="Also report the score on each cluster of dependent prompts (a common period, needle or "
    "order), as metrics such as 'induction [period 12]'.",
)
@click.option(
    "--prompt-values/--no-prompt-values",
    default=True,
    show_default=True,
    help="With --out, also keep the value of every head on every prompt, for comparisons and "
    "bootstraps: 4 bytes each before compression.",
)
@click.option(
    "-j",
    "--jobs",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="Number of processes, which share models and metrics; fewer if memory is short. The "
    "values are those of one process with as many threads as each has.",
)
@click.option(
    "--shard",
    metavar="I/N",
    help="Do only the I-th of N parts, for job arrays; all jobs write to one --out.",
)
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Score on a Ray cluster: host:port of its head node, 'auto' for the one on this machine, "
    "or 'local' to start one; --out must be a folder that all its machines see. Needs ray.",
)
@click.option("--json", "form", flag_value="json", help="Print only the table, as JSON, on stdout.")
@click.option("--csv", "form", flag_value="csv", help="Print only the table, as CSV, on stdout.")
@click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Do not print progress and notes; errors are still reported.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Load the models, time one prompt, and print the estimated cost and what limits it, "
    "without scoring.",
)
@click.option(
    "--machine",
    metavar="GFLOP/S,GB/S",
    help="With --dry-run: peak rates of the machine to plan for, such as 989000,3350; by default "
    "this machine is measured.",
)
@config_option()
@source_option
@device_map_option
@remote_option
@tp_plan_option
@loading_options
def score(
    sources: tuple[str, ...],
    out: Path | None,
    form: str | None,
    top: int,
    verbose: bool,
    dry_run: bool,
    machine: str | None,
    **options: Any,
) -> None:
    """Score every head of each MODEL.

    MODEL is a folder, a hub id, bundled:, planted: or variant:NAME; without it, all bundled models
    that read text.
    Prompts are random tokens repeated twice unless --file, --image or --audio is given. What
    was found and what was not is printed in at most ten lines per model: the roles of heads, with
    intervals and nulls.
    A model that fails is reported and skipped; plain files among the arguments are ignored, so that
    `interp score models/*` works.

    \b
    Exit codes: 0 all scored; 1 a model or a write failed, the rest was done;
    2 the command was wrong; 130 interrupted; 141 the reader of its output has gone;
    143 terminated.
    """  # fmt: skip
    given = (options.pop(name) for name in ("images", "audio", "text"))
    options["pictures"] = PicturePrompts.asked(*given)
    if options["pictures"] and (options["prompt_file"] or options["context"]):
        raise OptionError("--image and --audio exclude --file and --max-length")
    loading: Loading = options.pop("loading")
    if not sources:
        from interp import bundled

        quiet = options["quiet"] or form is not None
        sources = tuple(f"bundled:{name}" for name in bundled.names())
        if not sources:
            raise OptionError("this installation has no bundled models; name a model to score")
        if not quiet:  # before the imports below, which take seconds
            say(_bundled_note(bundled.names(), bundled.names("images")), err=True)
        out = DEFAULT_OUT if out is None and form is None else out
    from interp.cli.batch import ScoreRun

    loading.require_storable(out)
    labels = source_labels(sources, options.pop("names"))
    loading.require_device()
    import_first(options["imports"])
    shard = options.pop("shard")
    options["shard"] = None if shard is None else Shard.parse(shard)
    if dry_run:
        from interp.cli.dry_run import dry_run as estimated

        batch = ScoreRun.prepare(out=None, loading=loading, **options)
        click.get_current_context().exit(estimated(batch, labels, machine))
    if machine is not None:
        raise OptionError("--machine is for --dry-run, which plans a run; give both or neither")
    context = click.get_current_context()
    for name in ("top", "by"):
        source = context.get_parameter_source(name)
        verbose |= source is not None and source is not ParameterSource.DEFAULT
    batch = ScoreRun.prepare(out=out, loading=loading, **options)
    batch.listed = top if verbose else None
    context.exit(batch.run(labels, form=form))


def _bundled_note(texts: list[str], images: list[str]) -> str:
    """Return what the command without a model scores, and what it leaves out."""
    said = f"interp: scoring {len(texts)} bundled models that read text ({', '.join(texts)})"
    if not images:
        return said
    others = " and ".join(f"bundled:{name}" for name in images)
    return f"{said}; {others} read images: interp study vision bundled:{images[0]}"
