"""Command `interp importance`: several importances of the same heads, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from interp.cli.making import GAME, command
from interp.cli.run import Run
from interp.cli.vocabulary import Spelling

if TYPE_CHECKING:
    from interp.causal.comparison.result import Comparison
    from interp.causal.importance import Importance
    from interp.causal.task import Task
    from interp.model.model import Model


def _check(run: Run) -> None:
    from interp.causal.comparison.questions import require_methods

    require_methods(run.values["methods"])


@command(
    over="models",
    loading=("remote", "tp_plan"),
    also=GAME,
    options={"methods": Spelling(default="ablation,gate_gradient,aumann_shapley")},
    check=_check,
    example="interp importance bundled:stories --task stories:recipient -o results",
)
def rank(
    run: Run,
    model: Model,
    task: Task,
    methods: list[str],
    *,
    null: Literal["random-init", "none"] = "none",
    progress: Any = None,
    **game: Any,
) -> list[Importance | Comparison]:
    """Score the heads of each MODEL by several methods, and report their agreement.

    The methods answer different questions, so a low agreement is a finding: the page that --out
    writes gives the question of each method, with scatter plots of every pair. Shapley values take
    longest, 16 evaluations per head: name them with -m, or see `interp importance shapley`.

    Args:
        methods: an importance method, or several separated by commas; repeatable.
        null: null baseline: the same on random weights, beside each score.
    """
    from interp.causal.comparison.compare import compare_importances
    from interp.causal.methods import importances

    scores = importances(model, task, methods, null=null, progress=progress, **game)
    results: list[Any] = [*scores.values()]
    if len(results) > 1:
        results.append(compare_importances(scores))
        if (folder := run.folder("comparison.html")) is not None:
            results[-1].save(folder)
    return results
