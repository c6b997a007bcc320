"""Command `interp steer`: dose curve of heads that are scaled or added to."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interp.cli.loading import Loading, import_first, loading_options
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument
from interp.cli.value_types import OUT_FOLDER
from interp.cli.written import model_folder
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.causal.task import Task
    from interp.model.model import Model

GROUP = "Change"


@click.command(epilog="Example: interp steer bundled:induction --heads L1H0,L1H1 -o results")
@model_argument
@click.option("--heads", required=True, metavar="L0H1,...", help="Heads that are steered together.")
@click.option(
    "--task",
    default="repeats",
    show_default=True,
    metavar="NAME|FILE",
    help="The task: 'repeats' (loss on the second copy of random tokens), a contrast task of "
    "`interp circuit` (such as ioi), or a .txt, .jsonl or .py file as for `interp importance "
    "ablate`.",
)
@click.option(
    "--how",
    default="scale",
    show_default=True,
    type=click.Choice(["scale", "add"]),
    help="Multiply the heads' output by each factor, or add the factor times its mean difference "
    "between the task's prompts and its corrupted prompts.",
)
@click.option(
    "--factors",
    metavar="X,...",
    help="The factors; by default -2,-1,0,0.5,1,1.5,2,3. With `scale`, 1 is the model itself; "
    "with `add`, 0 is.",
)
@click.option("-n", "n", type=click.IntRange(4), default=32, show_default=True, metavar="N",
              help="Number of prompts of the task.")  # fmt: skip
@click.option("--random", "n_random", default=4, show_default=True, type=click.IntRange(0),
              metavar="N", help="Random sets of as many heads of the same layers.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of prompts and random sets.")
@click.option("-o", "--out", type=OUT_FOLDER, metavar="DIR",
              help="Folder for steer.json, steer.csv and steer.html.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def steer(
    source: str, heads: str, task: str, how: str, factors: str | None, n: int, n_random: int,
    seed: int, out: Path | None, quiet: bool, loading: Loading, imports: tuple[str, ...],
) -> None:  # fmt: skip
    """Turn heads of MODEL up and down, and measure a task and the loss on plain text.

    The curve shows the task at every factor with its 95 % interval, beside random sets of as many
    heads of the same layers. The loss on plain text shows what else is damaged.
    """
    doses = _factors(factors)
    import_first(imports)
    voice = Voice.of_command(quiet=quiet)
    from interp.causal.steering.dose import FACTORS
    from interp.causal.steering.dose import steer as measure
    from interp.model.check import check_model

    with voice.bars(source) as tell:
        model = loading.load(source, source)
        check_model(model).require()
        made = _task(model, task, n, seed)
        found = measure(
            model, heads.split(","), made, how=how, factors=doses or FACTORS, n_random=n_random,
            seed=seed, progress=tell,
        )  # fmt: skip
    click.echo(repr(found))
    if out is not None:
        folder = model_folder(out, model.name)
        for end in ("json", "csv", "html"):
            found.save(folder / f"steer.{end}")
        voice.note(f"{folder}: steer.json, steer.csv, steer.html")


def _factors(text: str | None) -> list[float] | None:
    """Parse factors; raises OptionError for one that is not a finite number."""
    if text is None:
        return None
    try:
        found = [float(x) for x in text.split(",")]
    except ValueError as error:
        raise OptionError(f"--factors {text}: give numbers, such as -2,0,1,3") from error
    if not all(map(math.isfinite, found)):
        raise OptionError(f"--factors {text}: give finite numbers, such as -2,0,1,3")
    return found


def _task(model: Model, name: str, n: int, seed: int) -> Task:
    from interp.causal.task_file import make_task
    from interp.circuits.tasks import TASKS, make_contrast

    if name.replace("-", "_") in TASKS:
        return make_contrast(model, name, n=n, seed=seed).task
    return make_task(model, name, measure=None, n=n, longest=None, seed=seed)
