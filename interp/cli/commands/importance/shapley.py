"""Command `interp importance shapley`: Shapley and Banzhaf values of heads for a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from interp.cli.causal import Causal, ModelOutcome, Tell, causal_options, importance_lines
from interp.cli.shared_options import models_argument
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.causal.importance import Importance
    from interp.causal.pairs import Interactions
    from interp.causal.task import Task
    from interp.model.model import Model


@click.command(
    epilog="Example: interp importance shapley bundled:induction --evaluations 256 -o results"
)
@models_argument
@click.option(
    "--method",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "exact", "permutations", "surrogate"]),
    help="exact runs all sets of up to 16 heads, permutations random orders, surrogate fits a "
    "model of the game and checks it; auto is exact up to 12 heads, then the surrogate.",
)
@click.option(
    "--value",
    default="shapley",
    show_default=True,
    type=click.Choice(["shapley", "per-layer", "banzhaf", "truncated"]),
    help="Kind of value. per-layer: exact values within each layer. banzhaf: contribution to a "
    "random half of the others. truncated: Held and Yang's estimator, which is biased.",
)
@click.option(
    "--sem",
    "target_sem",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop when the sampling error of every head is at most this, in the task's unit.",
)
@click.option(
    "--evaluations",
    "max_evaluations",
    type=click.IntRange(1),
    help="Maximum number of sets of heads to run.",
)
@click.option(
    "--interactions",
    "pairs",
    type=click.IntRange(0),
    default=0,
    metavar="K",
    help="Also compute the interactions of every pair of the first K heads.",
)
@click.option(
    "--null",
    default="none",
    show_default=True,
    type=click.Choice(["random-init", "none"]),
    help="Null baseline: the same on random weights, with as many sets of heads; doubles the time.",
)
@click.option(
    "--top", default=5, show_default=True, type=click.IntRange(1), help="Number of heads to print."
)
@causal_options
def shapley(
    causal: Causal,
    sources: tuple[str, ...],
    method: Any,
    value: str,
    target_sem: float | None,
    max_evaluations: int | None,
    pairs: int,
    null: Any,
    top: int,
) -> None:
    """Compute the Shapley value of each head of each MODEL for the task.

    The value is the contribution averaged over all orders of ablating heads, so redundant heads
    share the credit. The values add up to the joint effect of all heads; any difference is printed.
    The error is over prompts and samples.
    """
    budget = {"target_sem": target_sem, "max_evaluations": max_evaluations}
    if value == "per-layer" and any(x is not None for x in budget.values()):
        raise OptionError("per-layer values are exact; omit --sem and --evaluations")
    if value != "shapley" and null != "none":
        raise OptionError(f"--null applies to Shapley values only; omit it for {value} values")
    if value != "shapley" and method != "auto":
        raise OptionError(f"--method applies to Shapley values only; omit it for {value} values")

    def work(model: Model, task: Task, game: dict[str, Any], tell: Tell) -> ModelOutcome:
        from interp import causal as room

        if value == "shapley":
            from interp.causal.ablation import random_game

            played = room.Game(model, task, **game)
            beside = {k: v for k, v in game.items() if k not in ("kind", "players")}
            told: Any = room.estimate_shapley(
                played,
                method=method,
                max_evaluations=max_evaluations,
                seed=causal.seed,
            )
            causal.announce(model)(told)
            found: Importance = room.shapley_of(
                played,
                method=method,
                seed=causal.seed,
                null=null,
                beside=lambda: random_game(played, **beside),
                progress=tell,
                **budget,
            )
        elif value == "per-layer":
            found = room.shapley_per_layer(model, task, progress=tell, **game)
        elif value == "banzhaf":
            found = room.banzhaf(model, task, progress=tell, **budget, **game)
        else:
            found = room.truncated_shapley(model, task, progress=tell, **budget, **game)
        text = importance_lines([found], top)
        if pairs:
            between = room.interactions(model, task, among=found, top=pairs, progress=tell, **game)
            text += interacting(between)
            told = budget | {"pairs": pairs, "value": value, "method": method}
            folder = causal.folder(model, task, "interactions.csv", **told)
            if folder is not None:
                from interp.core.files import write_atomically

                table = between.wide().to_csv(index=False, lineterminator="\n")
                write_atomically(folder / "interactions.csv", table.encode())
        return ModelOutcome([found.table], text)

    click.get_current_context().exit(causal.run(sources, work))


def interacting(between: Interactions) -> str:
    """Format a line per pair, the strongest first."""
    from interp.core.columns import with_error

    lines = [f"  interactions ({between.index}, {between.method}; {between.unit})"]
    order = abs(between.score).argsort()[::-1].tolist()
    for i in order:
        a, b = (between.players[p] for p in between.pairs[i].tolist())
        lines.append(f"  {a} x {b}  {with_error(float(between.score[i]), float(between.sem[i]))}")
    return "\n".join([*lines, ""])
