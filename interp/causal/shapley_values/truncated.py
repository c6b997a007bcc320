"""The truncated Shapley estimator of Held and Yang, which estimates something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.causal.game.chain import Playable, Walk
from interp.causal.game.game import Game, Progress
from interp.causal.shapley_values.permutations import permutation_values
from interp.causal.shapley_values.scores import Sampled, as_importance
from interp.causal.shapley_values.solution import Solution, Told
from interp.causal.task import Task
from interp.core.errors import OptionError
from interp.core.steps import finishing
from interp.model.given import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

PERMUTATIONS = 32


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
) -> Sampled:
    """Mean contribution while a first `share` of the players leaves; later ones count as 0.

    Held and Yang 2023, "Shapley Head Values", with share 0.5 and single permutations. It asks who
    is missed while at least half of the heads still work. This is not the Shapley value and no
    number of samples makes it so: heads whose work shows only when many others are gone, such as
    redundant ones, score too low. `notes["efficiency_gap"]` is what the sum misses of
    v(all) - v(none), and `notes["bias"]` says so.

    Args:
        share: of the players that leave before contributions count as 0.
        max_evaluations: 32 permutations unless it or `target_sem` is given.
        kind, target_sem, seed, walk, progress, options: as for `interp.causal.shapley`.

    Raises:
        OptionError: a share outside (0, 1), an error that is not positive, or a budget below one
            truncated permutation.

    Cost: 32 half permutations unless told otherwise.

    Null: none.

    Not for: a replacement of Shapley values: it is biased, and more samples do not help. It is kept
    to compare with published numbers.

    Reference: Held and Yang 2023, "Shapley Head Values".
    """
    game = Game(model, task, kind=kind, seed=seed, **options)
    found = truncated_values(
        game, share=share, target_sem=target_sem, max_evaluations=max_evaluations, seed=seed,
        walk=walk, progress=progress,
    )  # fmt: skip
    return as_importance(
        game,
        found,
        summary="truncated_shapley",
        options={"share": share, "evaluations": found.evaluations},
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
    """`truncated_shapley` of any game."""
    if not 0 < share < 1:
        raise OptionError(f"share={share}; the part of the players that leaves is between 0 and 1")
    return permutation_values(
        game, antithetic=False, steps=max(1, int(len(game) * share)), target_sem=target_sem,
        max_evaluations=max_evaluations, seed=seed, walk=walk, progress=progress,
    )  # fmt: skip
