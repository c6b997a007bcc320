"""Banzhaf values: mean contribution of a head to a random half of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from interp.causal.game.chain import Playable
from interp.causal.game.game import Game
from interp.causal.importance import Importance
from interp.causal.shapley_values.exact import exact_values
from interp.causal.shapley_values.permutations import target_reached
from interp.causal.shapley_values.scores import as_importance
from interp.causal.shapley_values.solution import (
    EXACT,
    Solution,
    Told,
    check_budget,
    end_values,
    game_name,
    values,
)
from interp.causal.task import Task
from interp.core.errors import UnknownName
from interp.core.protocols import Progress
from interp.core.standard_errors import standard_error
from interp.core.steps import finishing
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

METHODS = ("auto", "exact", "sampled")
DEFAULT_PAIRS = 256
_AUTO_EXACT = 12
_ROUND = 32  # pairs between two checks of the error


@takes_model
@finishing()
def banzhaf(
    model: Model,
    task: Task,
    *,
    method: Literal["auto", "exact", "sampled"] = "auto",
    kind: str = "zero",
    target_sem: float | None = None,
    max_evaluations: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Importance:
    """Compute each player's mean marginal contribution to all coalitions of the others.

    It measures what a head adds when each other head is active with probability 1/2. Nearly all
    such coalitions contain about half of the heads, so unlike Shapley values it does not describe
    the nearly complete model, and values do not add up to v(all) - v(none)
    (`notes["efficiency_gap"]` is the difference). Sampled values need fewer evaluations, since each
    coalition serves all players (maximum sample reuse: Wang and Jia 2023, "Data Banzhaf").

    Args:
        model: the model.
        task: the task to measure.
        method: "exact" up to 16 players, "sampled" with coalitions and their complements, or
            "auto": exact up to 12 or where `max_evaluations` allows it.
        kind: see `interp.causal.shapley`.
        target_sem: see `interp.causal.shapley`.
        max_evaluations: see `interp.causal.shapley`; without a target or budget, 256 pairs of
            coalitions are used.
        seed: see `interp.causal.shapley`.
        progress: see `Progress`.
        **options: options of `Game`.

    Raises:
        OptionError: there are too many players for the exact mode, or the error or budget is
            invalid.

    Cost: Exact up to 12 heads; otherwise 512 forward passes serve all heads.

    Null: none.

    Not for: shares of a total: values do not add up, and nearly full or nearly empty models hardly
    count.

    Reference: Banzhaf 1965; Wang and Jia 2023, "Data Banzhaf".
    """
    if method not in METHODS:
        raise UnknownName("method of banzhaf", method, METHODS)
    game = Game(model, task, kind=kind, seed=seed, **options)
    n = len(game)
    allowed = 2**_AUTO_EXACT if max_evaluations is None else max_evaluations + 2
    if method == "auto":
        method = "exact" if n <= EXACT and 2**n <= allowed else "sampled"
    if method == "exact":
        every = 2 ** min(n, EXACT) - 2
        check_budget(n, target_sem, max_evaluations, least=every, why="the exact mode")
        solution = banzhaf_exact(game, progress=progress)
    else:
        solution = banzhaf_sampled(
            game,
            target_sem=target_sem,
            max_evaluations=max_evaluations,
            seed=seed,
            progress=progress,
        )
    figures: dict[str, Any] = {"method": method}
    if method == "sampled":
        figures |= {"evaluations": solution.evaluations}
    return as_importance(
        game,
        solution,
        summary="banzhaf",
        options=figures,
        made_by="interp.causal.banzhaf",
        notes={},
        null=None,
    )


def banzhaf_exact(game: Playable, *, progress: Told = None) -> Solution:
    """Compute values from all coalitions, each with the same weight."""
    n = len(game)
    return exact_values(game, weights=np.full(n, 2.0 ** (1 - n)), progress=progress)


def banzhaf_sampled(
    game: Playable,
    *,
    target_sem: float | None = None,
    max_evaluations: int | None = None,
    seed: int = 0,
    progress: Told = None,
) -> Solution:
    """Estimate values from random coalitions, each with its complement.

    A pair (S, complement) estimates every player's value at once: v(S) - v(complement) for those in
    S, its negative for the others.
    """
    n = len(game)
    check_budget(n, target_sem, max_evaluations, least=2, why="one coalition and its complement")
    most = DEFAULT_PAIRS if max_evaluations is None else max_evaluations // 2
    if max_evaluations is None and target_sem is not None:
        most = 2**62
    v_all, v_none = end_values(game)
    total, means = np.zeros((n, len(v_all))), []
    while len(means) < most:
        if target_reached(means, target_sem, _ROUND):
            break
        have = len(means)
        count = min(_ROUND, most - have)
        coin = np.stack([_coins(n, seed, have + k) for k in range(count)])
        report = None
        if progress is not None:
            aim = 2 * (most if most < 2**62 else have + count)
            report = lambda k, h=have, a=aim: progress(game_name(game), 2 * h + k, a)  # noqa: E731
        table = values(game, np.concatenate([coin, 1 - coin]), report)
        change = table[:count] - table[count:]
        sign = 2 * coin - 1
        total += sign.T @ change
        means += list(sign * change.mean(1)[:, None])
    sem = standard_error(np.stack(means, -1))
    return Solution(
        total / len(means), sem, 2 * len(means), v_all, v_none, sampling_df=len(means) - 1
    )


def _coins(n: int, seed: int, k: int) -> Float[np.ndarray, " player"]:
    return np.random.default_rng([seed, 3, k]).integers(2, size=n).astype(float)
