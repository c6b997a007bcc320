"""Command `interp score`: scores of every head of every model, with errors and null baselines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.between import write_curves
from interp.cli.making import command
from interp.cli.progress import say_scores
from interp.cli.run import Input, Run
from interp.cli.stopping import INTERRUPTED
from interp.cli.vocabulary import FROM_0, FROM_1, Spelling
from interp.cli.wrapping import print_rows, print_text
from interp.cli.wrong_models import require_one_known
from interp.core.errors import OptionError, StoreError
from interp.core.order import BY
from interp.core.shards import Shard
from interp.heads.sweep.each import failure_count
from interp.heads.sweep.prompts import PicturePrompts
from interp.model.loading import source_labels

if TYPE_CHECKING:
    from interp.core.table import HeadTable
    from interp.heads.sweep.scored_models import ScoreSweep

DEFAULT_OUT = Path("results")
FEW = 3  # models from which on a page shows how far the run is
GROUP = "Measure"
OF_PICTURES = ("images", "audio", "text")


def _pictures(run: Run) -> PicturePrompts | None:
    return PicturePrompts.asked(*(run.values[name] for name in OF_PICTURES))


def _check(run: Run) -> None:
    values = run.values
    if _pictures(run) and (values["prompt_file"] or values["max_length"]):
        raise OptionError("--image and --audio exclude --file and --max-length")
    if not run.sources:
        run.take_usual()
        run.out = DEFAULT_OUT if run.out is None and run.form is None else run.out
    else:
        require_one_known(run.sources)
    source_labels(run.sources, values["name"])
    run.loading.require_storable(run.out)
    if values["dry_run"]:
        run.out = None
    elif values["machine"] is not None:
        raise OptionError("machine is for --dry-run, which plans a run; give both or neither")


@command(
    over="sources",
    arguments=("[MODEL]...",),
    also={
        "interp.heads.sweep.scored_models:ScoreSweep": (
            "prompt_file",
            "max_length",
            "null",
            "null_draws",
            "null_cache",
            "seed",
            "batch_size",
            "engine",
            "by_cluster",
            "jobs",
            "shard",
            "ray",
        )
    },
    inputs={"pictures": Input(_pictures, OF_PICTURES)},
    options={
        "metrics": Spelling(default=()),
        "name": Spelling(
            type=click.STRING,
            metavar="NAME",
            multiple=True,
            help="Name of a model in the results, in place of its folder's; one for each MODEL, in "
            "order.",
        ),
        "prompt_file": Spelling(
            help='File of prompts, one per line, or .jsonl with {"prompt": ..., "cluster": ...} '
            "per line (errors are over clusters); with --max-length, the beginning of the file is "
            "one prompt."
        ),
        "text": Spelling(multiple=True, help="Text beside each picture or sound, or one for all."),
        "null_draws": Spelling(type=FROM_1, default=6),
        "seed": Spelling(type=click.INT),
        "top": Spelling(type=FROM_0, default=3),
        "by": Spelling(type=click.Choice(BY)),
        "machine": Spelling(metavar="GFLOP/S,GB/S"),
        "shard": Spelling(type=click.STRING, read=lambda text: text and Shard.parse(text)),
    },
    loading=("config", "source", "chat", "device_map", "remote", "tp_plan"),
    out="tables",
    check=_check,
    help="Exit codes: 0 all scored; 1 a model or a write failed, the rest was done; 2 the command "
    "was wrong; 130 interrupted; 141 the reader of its output has gone; 143 terminated.",
    example="interp score gpt2 bundled:stories -m induction,entropy -o results",
)
def score(
    run: Run,
    sources: tuple[str, ...],
    metrics: list[str],
    pictures: PicturePrompts | None = None,
    *,
    name: tuple[str, ...] = (),
    top: int = 3,
    by: str = "end",
    verbose: bool = False,
    dry_run: bool = False,
    machine: str | None = None,
    **options: Any,
) -> None:
    """Score every head of each MODEL.

    MODEL is a folder, a hub id or a name of `interp list models`; without it, bundled:stories.

    Prompts are random tokens repeated twice unless --file, --image or --audio is
    given. What was found and what was not is printed in at most ten lines per model: the roles of
    heads, with intervals and nulls.

    With --out, a folder gets one file per model and metric, table.parquet, table.csv and
    heads.html, and the same command resumes an interrupted run. Without it results are only
    printed, or stored in ./results if no model is named. A model that fails is reported and
    skipped; plain files among the arguments are ignored, so that `interp score models/*` works.

    Args:
        sources: the models.
        metrics: a metric, several separated by commas, a group (detectors, weights, geometry,
            categories, cache, cross, segments, experiments, roles), 'all', or a .py file that
            declares one. Repeatable; detectors and weights by default.
        pictures: prompts of pictures or sound.
        name: names of the models.
        top: number of heads to list per metric; implies --verbose.
        by: order of the listed heads; implies --verbose: 'end' as the metric declares it (the
            highest first, the lowest, or both ends of a signed metric), or by the highest score,
            the largest absolute value, the distance from the null, or the lowest score.
        verbose: after what was found, list the first heads of every metric.
        dry_run: load the models, time one prompt, and print the estimated cost and what limits it,
            without scoring.
        machine: with --dry-run: peak rates of the machine to plan for, such as 989000,3350; by
            default this machine is measured.
    """
    from interp.heads.sweep.scored_models import ScoreSweep
    from interp.report.printed.scores import scored_text
    from interp.report.summary import RunPage

    listed = top if verbose or run.stated("top") or run.stated("by") else None
    known, labels = False, source_labels(sources, name)
    page = None if run.out is None or len(labels) < FEW else RunPage(run.out, len(labels))

    def shown(table: HeadTable) -> None:
        nonlocal known
        if page is not None:
            page.add(table)
        if run.form is not None:
            return
        known = say_scores(scored_text(table, listed, by), run.voice, known=known)

    sweep = ScoreSweep.prepare(
        metrics=metrics,
        out=run.out,
        voice=run.voice,
        loading=run.loading,
        pictures=pictures,
        shown=shown,
        **options,
    )
    if dry_run:
        from interp.heads.sweep.plan import plan_all

        run.failed = len(plan_all(sweep, labels, machine, print_text))
        return
    code = 0
    try:
        sweep.run(labels)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except StoreError as error:  # later results could not be stored either
        run.voice.error(str(error), error)
        code = 1
    _end(run, sweep, labels, code)
    if code or sweep.failed:
        click.get_current_context().exit(code or 1)


def _end(run: Run, sweep: ScoreSweep, labels: dict[str, str], code: int) -> None:
    """Print what is said of all models together, and write the summary of a whole run."""
    from interp.core.table import HeadTable
    from interp.report.printed.verdict import models_text
    from interp.report.summary import FILES, MODELS, write_summary

    table = HeadTable.concat(sweep.done)
    if run.form is not None:
        print_rows(table.to_json() if run.form == "json" else table.to_csv())
    elif text := models_text(table):
        print_text(text)
    if code == INTERRUPTED:
        run.voice.error(f"interrupted; {_safe(sweep)}")
    elif sweep.store is not None and code == 0 and len(table):
        write_summary(sweep.store, sweep.reasons)
        files = ["roles.csv", MODELS] * (len(table.models) > 1) + [*FILES]
        run.voice.note(f"{sweep.store.folder}: {', '.join(files)} (open it in a browser)")
        if len(labels) > 2:  # the fewest checkpoints of a curve
            write_curves(run.voice, sweep.store.folder, labels, table)
    if sweep.failed:
        run.voice.error(failure_count(sweep.failed, labels))


def _safe(sweep: ScoreSweep) -> str:
    if sweep.store is None:
        return (
            "finished scores are printed above; with --out they would be stored, and the run "
            "could resume"
        )
    stored = f"{sweep.kept} results are stored in {sweep.store.folder}"
    return f"{stored}; run the same command again to resume"
