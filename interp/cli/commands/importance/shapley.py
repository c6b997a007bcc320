"""Command `interp importance shapley`: Shapley and Banzhaf values of heads for a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from interp.cli.making import GAME, command
from interp.cli.run import Run

if TYPE_CHECKING:
    from interp.causal.importance import Importance
    from interp.causal.task import Task
    from interp.model.model import Model


@command(
    over="models",
    loading=("remote", "tp_plan"),
    also=GAME,
    example="interp importance shapley bundled:induction --max-evaluations 256 -o results",
)
def shapley(
    run: Run,
    model: Model,
    task: Task,
    *,
    method: Literal["auto", "exact", "permutations", "surrogate", "gradients"] = "auto",
    max_evaluations: int | None = None,
    null: Literal["random-init", "none"] = "none",
    progress: Any = None,
    **game: Any,
) -> Importance:
    """Compute the Shapley value of each head of each MODEL for the task.

    The value is the contribution averaged over all orders of ablating heads, so redundant heads
    share the credit. The values add up to the joint effect of all heads; any difference is printed.
    The error is over prompts and samples.

    Args:
        method: exact runs all sets of up to 16 heads, permutations random orders, surrogate fits a
            model of the game and checks it, gradients takes derivatives at random sets: a first
            answer for any number of heads; auto is exact up to 12 heads, then the surrogate.
        max_evaluations: maximum number of sets of heads to run.
        null: null baseline: the same on random weights, with as many sets of heads; doubles the
            time.
    """
    from interp.causal.ablation import random_game
    from interp.causal.game.game import Game
    from interp.causal.shapley_values.scores import estimate_shapley, shapley_of

    played = Game(model, task, **game)
    beside = {k: v for k, v in game.items() if k not in ("kind", "players")}
    shared: Any = {"method": method, "seed": game["seed"], "max_evaluations": max_evaluations}
    run.announce(estimate_shapley(played, **shared))
    return shapley_of(
        played,
        null=null,
        beside=lambda: random_game(played, **beside),
        progress=progress,
        **shared,
    )
