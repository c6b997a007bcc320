"""Truncated Shapley estimator of Held and Yang, which differs from the Shapley value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.causal.game.chain import Playable, Walk
from interp.causal.game.game import Game
from interp.causal.importance import Importance
from interp.causal.shapley_values.permutations import permutation_values
from interp.causal.shapley_values.scores import as_importance
from interp.causal.shapley_values.solution import Solution, Told
from interp.causal.task import Task
from interp.core.errors import OptionError
from interp.core.protocols import Progress
from interp.core.steps import finishing
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model


@takes_model
@finishing()
def truncated_shapley(
    model: Model,
    task: Task,
    *,
    kind: str = "zero",
    share: float = 0.5,
    target_sem: float | None = None,
    max_evaluations: int | None = None,
    seed: int = 0,
    walk: Walk = "auto",
    progress: Progress | None = None,
    **options: Any,
) -> Importance:
    """Estimate mean contributions over a first `share` of removals; later ones count as 0.

    Held and Yang 2023, "Shapley Head Values", with share 0.5 and single permutations. It measures
    contributions while at least half of the heads are active. This is not the Shapley value and
    does not converge to it: heads whose effect appears only when many others are removed, such as
    redundant ones, score too low. `notes["efficiency_gap"]` is the difference of the sum from
    v(all) - v(none), and `notes["bias"]` states the bias.

    Args:
        model: the model.
        task: the task to measure.
        kind: see `interp.causal.shapley`.
        share: share of the players removed before contributions count as 0.
        target_sem: see `interp.causal.shapley`.
        max_evaluations: maximum number of coalitions; without it and `target_sem`, 32 permutations
            are used.
        seed: see `interp.causal.shapley`.
        walk: see `interp.causal.game.chain`.
        progress: see `Progress`.
        **options: options of `Game`.

    Raises:
        OptionError: the share lies outside (0, 1), the target error is not positive, or the budget
            is below one truncated permutation.

    Cost: 32 half permutations by default.

    Null: none.

    Not for: replacing Shapley values: it is biased, and more samples do not help. It is included to
    compare with published numbers.

    Reference: Held and Yang 2023, "Shapley Head Values".
    """
    game = Game(model, task, kind=kind, seed=seed, **options)
    solution = truncated_values(
        game,
        share=share,
        target_sem=target_sem,
        max_evaluations=max_evaluations,
        seed=seed,
        walk=walk,
        progress=progress,
    )
    return as_importance(
        game,
        solution,
        summary="truncated_shapley",
        options={"share": share, "evaluations": solution.evaluations},
        made_by="interp.causal.truncated_shapley",
        notes={"bias": "truncated: not the Shapley value at any number of samples"},
        null=None,
    )


def truncated_values(
    game: Playable,
    *,
    share: float = 0.5,
    target_sem: float | None = None,
    max_evaluations: int | None = None,
    seed: int = 0,
    walk: Walk = "auto",
    progress: Told = None,
) -> Solution:
    """Compute `truncated_shapley` of any game."""
    if not 0 < share < 1:
        raise OptionError(f"share={share}; the share of removed players must lie between 0 and 1")
    return permutation_values(
        game,
        antithetic=False,
        steps=max(1, int(len(game) * share)),
        target_sem=target_sem,
        max_evaluations=max_evaluations,
        seed=seed,
        walk=walk,
        progress=progress,
    )
