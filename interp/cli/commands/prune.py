"""`interp prune`: the task against the number of heads taken out, beside random orders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from interp.cli.causal import Causal, Found, Tell, causal_options
from interp.cli.name_types import MODEL_NAME
from interp.core.declaration import split_names

if TYPE_CHECKING:
    from interp.causal.importance import Importance
    from interp.causal.pruning.result import PruningCurve
    from interp.causal.task import Task
    from interp.model.model import Model


@click.command(epilog="Example: interp prune bundled:induction -o results")
@click.argument("sources", nargs=-1, required=True, metavar="MODEL...", type=MODEL_NAME)
@click.option(
    "--by",
    multiple=True,
    default=("integrated_gradients",),
    show_default=True,
    metavar="NAME[:OPTION=VALUE,...]",
    help="The ranking: an importance as in `interp importance`, or greedy, which evaluates every "
    "remaining head after each removal. Several with commas between; repeatable.",
)
@click.option(
    "--order",
    default="least-first",
    show_default=True,
    type=click.Choice(["least-first", "most-first"]),
    help="Which heads go first.",
)
@click.option(
    "--random",
    "n_random",
    default=20,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Random orders, for the band.",
)
@click.option("--steps", type=click.IntRange(2), metavar="N", help="Counts to evaluate, not all.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    help="Worsening of the task that is let pass, in its unit; by default a tenth of what taking "
    "out the last head of the curve comes to.",
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
    """Take heads of each MODEL out one after another, the least important first.

    A ranking that knows which heads matter keeps the task where it is for long. How long says
    little without the band of random orders, which comes with every curve, and on the prompts that
    it was ranked on, which it knows too well: it is ranked on one half of the prompts and judged on
    the other as well, and that number stands first.
    """
    asked = [name for text in by for name in split_names(text)]

    def work(model: Model, task: Task, game: dict[str, Any], tell: Tell) -> Found:
        import pandas as pd

        from interp.causal.methods import importances

        scored = [name for name in asked if name != "greedy"]
        found = importances(model, task, scored, progress=tell, **game) if scored else {}
        rankings = {name: found.get(name) for name in asked}
        options = game | {"order": order, "n_random": n_random, "steps": steps}
        made = _curves(causal, model, task, rankings, tell, options)
        frames = [c.to_pandas().assign(model=model.name, ranking=c.name) for c in made]
        frame = pd.concat(frames, ignore_index=True)
        return Found([f.table for f in found.values()], text(made, tolerance), frame)

    click.get_current_context().exit(causal.run(sources, work))


def curves(
    causal: Causal,
    model: Model,
    task: Task,
    rankings: Mapping[str, Importance | None],
    tell: Tell,
    options: dict[str, Any],
) -> str:
    """Make and write a curve for each ranking (None: greedy); what they say."""
    return text(_curves(causal, model, task, rankings, tell, options), None)


def _curves(
    causal: Causal,
    model: Model,
    task: Task,
    rankings: Mapping[str, Importance | None],
    tell: Tell,
    options: dict[str, Any],
) -> list[PruningCurve]:
    from interp.causal.pruning.page import save_curves
    from interp.causal.pruning.prune import estimate_pruning, pruning_curve

    made = []
    for name, ranking in rankings.items():
        how: Any = "greedy" if ranking is None else "one-shot"
        causal.announce(model)(estimate_pruning(model, task, ranking, how=how, **options))
        made.append(
            pruning_curve(model, task, ranking, how=how, name=name, progress=tell, **options)
        )
    usual = {"order": "least-first", "n_random": 20, "steps": None}  # of `importance --prune`
    told = {name: options.get(name, x) for name, x in usual.items()}
    folder = causal.folder(model, task, "pruning.html", **told)
    if folder is not None:
        save_curves(made, folder)
    return made


def text(curves: list[PruningCurve], tolerance: float | None) -> str:
    """What the curves say, a line each."""
    first = curves[0]
    whole = abs(first.value[-1] - first.clean)
    allowed = whole / 10 if tolerance is None else tolerance
    lines = [
        str(first.made.get("model_id")),
        f"  {first.made['task']}: {first.clean:.4g} {first.unit} with all {first.n_players} "
        f"{first.made['players']}, {first.value[-1]:.4g} with {first.counts[-1]} out",
    ]
    width = max(len(c.name) for c in curves)
    for c in curves:
        gap = f"; better than random by {c.advantage} ({c.unit})" if len(c.random) else ""
        free = str(c.n_free(allowed))
        if c.held_out_per_prompt is not None:
            free = f"{c.n_free(allowed, held_out=True)} ({c.n_free(allowed)} where ranked)"
        lines.append(f"  {c.name:<{width}}  {free} go before it worsens by {allowed:.2g}{gap}")
    return "\n".join([*lines, ""])
