"""Commands `interp importance shapley`, `ablate` and `gates`: heads that are gated or ablated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from interp.cli.making import GAME, command
from interp.cli.run import Run
from interp.cli.vocabulary import ABOVE_0, FROM_1, FROM_2, Spelling

if TYPE_CHECKING:
    from interp.causal.importance import Importance
    from interp.causal.task import Task
    from interp.model.model import Model


@command(
    over="models",
    loading=("remote", "tp_plan"),
    also=GAME,
    example="interp importance shapley bundled:stories --task stories:recipient -o results",
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


@command(
    over="models",
    loading=("remote", "tp_plan"),
    also=GAME,
    example="interp importance ablate bundled:stories --task stories:recipient -o results",
)
def ablate(
    model: Model,
    task: Task,
    *,
    all_but_one: bool = False,
    null: Literal["random-init", "none"] = "random-init",
    progress: Any = None,
    announce: Any = None,
    **options: Any,
) -> Importance:
    """Ablate each head of each MODEL and measure the exact effect on the task.

    The score is the change of the task when only this head is ablated, with its standard error over
    prompts. It misses redundant heads; `interp importance shapley` does not.

    Args:
        all_but_one: keep only one head per layer, and ablate the others of the layer.
        null: null baseline: the same on random weights, the effect of ablation on any network of
            this shape.
        announce: called with the estimated time and memory before a run.
    """
    from interp.causal import ablation

    score = ablation.all_but_one if all_but_one else ablation.leave_one_out
    return score(model, task, null=null, progress=progress, announce=announce, **options)


def _write_curves(run: Run) -> None:
    """Write curves over training steps, if the sources are checkpoints of one run."""
    from interp.core.errors import OptionError
    from interp.heads.checkpoints.emergence import emergence_of_gates
    from interp.heads.checkpoints.steps import steps_of

    steps = steps_of(run.sources)
    if run.out is None or steps is None or not len(run.results) == len(run.sources) > 1:
        return
    try:
        gates = [result for _, [result] in run.results]
        curves = emergence_of_gates(dict(zip(steps, gates, strict=True)))
    except OptionError as error:
        run.voice.note(f"no curves over checkpoints: {error}")
        return
    for suffix in ("html", "json"):
        curves.save(run.out / f"gates_emergence.{suffix}")
    run.voice.note(
        f"{run.out}: gates_emergence.html, curves of gates over {len(steps)} checkpoints"
    )


gates = command(
    "interp.causal.gating.learn:learn_gates",
    over="models",
    loading=("remote", "tp_plan"),
    also=GAME,
    omit=("resume",),
    options={
        "steps": Spelling(type=FROM_1, metavar="N"),
        "rate": Spelling(type=ABOVE_0),
        "n_random": Spelling(type=FROM_2),
    },
    files=("gates.json", "gates.html"),
    after=_write_curves,
    help="With --out, gates.json can be given to `interp prune --gates`. With several checkpoints "
    "of one training run, gates_emergence.html holds the curve of every head's gate.",
    example="interp importance gates bundled:induction --method causal -o results",
)
