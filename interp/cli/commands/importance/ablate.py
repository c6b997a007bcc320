"""Command `interp importance ablate`: effect of ablating each head on a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from interp.cli.making import GAME, command

if TYPE_CHECKING:
    from interp.causal.importance import Importance
    from interp.causal.task import Task
    from interp.model.model import Model


@command(
    over="models",
    loading=("remote", "tp_plan"),
    also=GAME,
    example="interp importance ablate bundled:induction --kind mean-position -o results",
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
