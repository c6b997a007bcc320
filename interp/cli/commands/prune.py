"""Command `interp prune`: task against the number of removed heads, beside random orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from interp.cli.causal import Causal, ModelOutcome, Tell, causal_options
from interp.cli.name_types import MODEL_NAME
from interp.cli.pruning import made_curves, pruning_lines
from interp.cli.wrong_models import checked_sources
from interp.core.declaration import split_names

if TYPE_CHECKING:
    from interp.causal.task import Task
    from interp.model.model import Model

GROUP = "Causal"


@click.command(epilog="Example: interp prune bundled:induction -o results")
@click.argument(
    "sources",
    nargs=-1,
    required=True,
    metavar="MODEL...",
    type=MODEL_NAME,
    callback=checked_sources,
)
@click.option(
    "--by",
    multiple=True,
    default=("aumann_shapley",),
    show_default=True,
    metavar="NAME[:OPTION=VALUE,...]",
    help="The ranking: an importance as in `interp importance`, or greedy, which evaluates every "
    "remaining head after each removal. Several are separated by commas; repeatable.",
)
@click.option(
    "--order",
    default="least-first",
    show_default=True,
    type=click.Choice(["least-first", "most-first"]),
    help="Heads that are removed first.",
)
@click.option(
    "--random",
    "n_random",
    default=20,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Number of random orders, for the band.",
)
@click.option(
    "--steps",
    type=click.IntRange(2),
    metavar="N",
    help="Number of counts to evaluate; by default all.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    help="Tolerated decrease of the task, in its unit; by default a tenth of the decrease at the "
    "end of the curve.",
)
@causal_options
def prune(
    causal: Causal,
    sources: tuple[str, ...],
    by: tuple[str, ...],
    order: Any,
    n_random: int,
    steps: int | None,
    tolerance: float | None,
) -> None:
    """Remove heads of each MODEL one after another, the least important first.

    With a good ranking the task stays intact for long. Compare with the band of random orders,
    which comes with every curve. Prompts used for the ranking bias the result in its favour, so
    heads are also ranked on one half of the prompts and judged on the other; that number is printed
    first.
    """
    from interp.causal.comparison.questions import require_methods

    asked = [name for text in by for name in split_names(text)]
    require_methods(name for name in asked if name != "greedy")

    def work(model: Model, task: Task, game: dict[str, Any], tell: Tell) -> ModelOutcome:
        import pandas as pd

        from interp.causal.methods import importances

        scored = [name for name in asked if name != "greedy"]
        found = importances(model, task, scored, progress=tell, **game) if scored else {}
        rankings = {name: found.get(name) for name in asked}
        options = game | {"order": order, "n_random": n_random, "steps": steps}
        made = made_curves(causal, model, task, rankings, tell, options)
        frames = [c.wide().assign(model=model.name, ranking=c.name) for c in made]
        frame = pd.concat(frames, ignore_index=True)
        return ModelOutcome(
            [f.table for f in found.values()], pruning_lines(made, tolerance), frame
        )

    click.get_current_context().exit(causal.run(sources, work))
