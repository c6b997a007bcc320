"""Command `interp importance shapley`: Shapley and Banzhaf values of heads for a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from interp.cli.making import GAME, command
from interp.cli.run import Run
from interp.cli.vocabulary import ABOVE_0, FROM_0, Spelling
from interp.core.csv_rows import csv_text
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.causal.importance import Importance
    from interp.causal.task import Task
    from interp.core.result_rows import ResultRows
    from interp.model.model import Model


def _check(run: Run) -> None:
    value, values = run.values["value"], run.values
    budget = (values["target_sem"], values["max_evaluations"])
    if value == "per-layer" and any(x is not None for x in budget):
        raise OptionError("per-layer values are exact; omit --set target_sem and --max-evaluations")
    for name, usual in (("null", "none"), ("method", "auto")):
        if value != "shapley" and values[name] != usual:
            raise OptionError(
                f"--{name} applies to Shapley values only; omit it for {value} values"
            )


@command(
    over="models",
    loading=("remote", "tp_plan"),
    also=GAME,
    options={
        "target_sem": Spelling(type=ABOVE_0),
        "n_pairs": Spelling(type=FROM_0, metavar="K"),
    },
    check=_check,
    example="interp importance shapley bundled:induction --max-evaluations 256 -o results",
)
def shapley(
    run: Run,
    model: Model,
    task: Task,
    *,
    method: Literal["auto", "exact", "permutations", "surrogate", "gradients"] = "auto",
    value: Literal["shapley", "per-layer", "banzhaf", "truncated"] = "shapley",
    target_sem: float | None = None,
    max_evaluations: int | None = None,
    n_pairs: int = 0,
    null: Literal["random-init", "none"] = "none",
    progress: Any = None,
    **game: Any,
) -> list[Importance | ResultRows]:
    """Compute the Shapley value of each head of each MODEL for the task.

    The value is the contribution averaged over all orders of ablating heads, so redundant heads
    share the credit. The values add up to the joint effect of all heads; any difference is printed.
    The error is over prompts and samples.

    Args:
        method: exact runs all sets of up to 16 heads, permutations random orders, surrogate fits a
            model of the game and checks it, gradients takes derivatives at random sets: a first
            answer for any number of heads; auto is exact up to 12 heads, then the surrogate.
        value: kind of value. per-layer: exact values within each layer. banzhaf: contribution to a
            random half of the others. truncated: Held and Yang's estimator, which is biased.
        target_sem: stop when the sampling error of every head is at most this, in the task's unit.
        max_evaluations: maximum number of sets of heads to run.
        n_pairs: also compute the interactions of every pair of the first K heads.
        null: null baseline: the same on random weights, with as many sets of heads; doubles the
            time.
    """
    from interp import causal as room

    budget = {"target_sem": target_sem, "max_evaluations": max_evaluations}
    if value == "shapley":
        from interp.causal.ablation import random_game
        from interp.causal.game.game import Game
        from interp.causal.shapley_values.scores import estimate_shapley, shapley_of

        played = Game(model, task, **game)
        beside = {k: v for k, v in game.items() if k not in ("kind", "players")}
        shared: Any = {"method": method, "seed": game["seed"]}
        run.announce(estimate_shapley(played, max_evaluations=max_evaluations, **shared))
        result = shapley_of(
            played,
            null=null,
            beside=lambda: random_game(played, **beside),
            progress=progress,
            **shared,
            **budget,
        )
    elif value == "per-layer":
        result = room.shapley_per_layer(model, task, progress=progress, **game)
    elif value == "banzhaf":
        result = room.banzhaf(model, task, progress=progress, **budget, **game)
    else:
        result = room.truncated_shapley(model, task, progress=progress, **budget, **game)
    if not n_pairs:
        return [result]
    pairs = room.interactions(model, task, among=result, top=n_pairs, progress=progress, **game)
    if (folder := run.folder("interactions.csv")) is not None:
        from interp.core.files import write_atomically

        table = csv_text(pairs.wide())
        write_atomically(folder / "interactions.csv", table.encode())
    return [result, pairs]
