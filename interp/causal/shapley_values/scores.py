"""Shapley values: share of each head in the task, averaged over all coalitions of the others.

A head's value is its marginal contribution averaged over all orders in which heads could be
removed. Leave-one-out measures the damage if only this head is removed, and misses redundant heads;
Shapley values share the credit among redundant heads, so active heads and their backups both score,
and all values add up to v(all) - v(none). v is the task's value, times -1 for a loss, so that a
positive value means that the head helps.

    exact          all coalitions, up to 16 players: no sampling error
    permutations   random orders and their reverses: unbiased, any number of players
    surrogate      a model of the game, checked against a few orders: several times fewer
                   evaluations at the same error, with a bias that is measured and reported
    gradients      derivatives at random coalitions: a first answer for any number of players in
                   under 100 forward passes, with the bias of the trapezoid rule
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from interp.causal.ablation import NULLS, AblationNull, random_game
from interp.causal.game.chain import Walk, estimate_walks
from interp.causal.game.game import Game, RunEstimate
from interp.causal.importance import Importance, make_importance
from interp.causal.shapley_values.exact import exact_values
from interp.causal.shapley_values.gaussian_process import fit_seconds
from interp.causal.shapley_values.gradients import DEFAULT, estimate_gradients, gradient_values
from interp.causal.shapley_values.permutations import (
    DEFAULT_PAIRS,
    permutation_values,
    sample_orders,
    samples_at_once,
)
from interp.causal.shapley_values.solution import (
    EXACT,
    Solution,
    check_budget,
    check_exact,
    subsets,
)
from interp.causal.shapley_values.surrogate import (
    MOST,
    Draws,
    antithetic_checks,
    check_orders,
    default_size,
    surrogate_values,
)
from interp.causal.task import Task
from interp.core.errors import NonFiniteError, UnknownName
from interp.core.protocols import Progress
from interp.core.steps import finishing
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

ShapleyMethod = Literal["auto", "exact", "permutations", "surrogate", "gradients"]
METHODS = ("auto", "exact", "permutations", "surrogate", "gradients")
_AUTO_EXACT = 12  # 4,096 coalitions
_IN_THE_TASK = {"v_all_minus_v_none", "efficiency_gap", "efficiency_gap_before"}


@takes_model
@finishing()
def shapley(
    model: Model,
    task: Task,
    *,
    method: ShapleyMethod = "auto",
    kind: str = "zero",
    target_sem: float | None = None,
    max_evaluations: int | None = None,
    seed: int = 0,
    null: AblationNull = "none",
    walk: Walk = "auto",
    progress: Progress | None = None,
    **options: Any,
) -> Importance:
    """Compute the Shapley value of every player, with errors over prompts and over samples.

    All prompts use the same coalitions (common random numbers). `notes` always contain
    `v_all_minus_v_none` (mean over prompts), `efficiency_gap` (the largest difference of a prompt's
    sum from it), `evaluations` and `sampling_sem` (the largest over players).

    Args:
        model: the model.
        task: the task to measure.
        method: "exact", "permutations", "surrogate", "gradients", or "auto": exact up to 12 players
            or if `max_evaluations` allows it, otherwise the surrogate.
        kind: what replaces an ablated head; see `interp.causal.game.replacement`.
        target_sem: stop when the error over samples of every player is at most this, in the
            task's unit.
        max_evaluations: maximum number of coalitions, besides the full and the empty one.
        seed: seed of coalitions and orders; the same seed evaluates the same coalitions.
        null: "random-init" also evaluates the game on random weights, with as many evaluations.
        walk: see `interp.causal.game.chain`.
        progress: see `Progress`.
        options: options of `Game`.

    Raises:
        OptionError: there are too many players for the exact mode, the target error is not
            positive, the budget is too small, or options do not fit the game.
        NonFiniteError: the task is NaN or infinite.

    Cost: Exact up to 12 heads: 2^n coalitions; otherwise 16 per head, with a sampling error; of
        "gradients" about 95 forward passes.

    Null: none by default; random weights on request.

    Not for: the damage from removing one head: a share of the credit is a different quantity. It is
    too expensive for a first look.

    Reference: Shapley 1953; of heads, Held and Yang 2023, "Shapley Head Values".
    """
    game = Game(model, task, kind=kind, seed=seed, **options)
    beside = None
    if null == "random-init":
        beside = lambda: random_game(game, seed=seed, **options)  # noqa: E731
    return shapley_of(
        game,
        method=method,
        target_sem=target_sem,
        max_evaluations=max_evaluations,
        seed=seed,
        null=null,
        beside=beside,
        walk=walk,
        progress=progress,
    )


def shapley_of(
    game: Game,
    *,
    method: ShapleyMethod = "auto",
    target_sem: float | None = None,
    max_evaluations: int | None = None,
    seed: int = 0,
    null: AblationNull = "none",
    beside: Callable[[], Game] | None = None,
    walk: Walk = "auto",
    progress: Progress | None = None,
) -> Importance:
    """Compute `shapley` of an existing game; `beside` makes the game of the null."""
    if null not in NULLS:
        raise UnknownName("null", null, NULLS)
    method = chosen_method(method, len(game), max_evaluations)

    def play(game: Game, target: float | None, most: int | None) -> Solution:
        if method == "exact":
            every = 2 ** min(len(game), EXACT) - 2
            check_budget(len(game), target, most, least=every, why="the exact mode")
            return exact_values(game, progress=progress)
        if method == "gradients":
            return gradient_values(
                game, target_sem=target, max_evaluations=most, seed=seed, progress=progress
            )
        sampler = permutation_values if method == "permutations" else surrogate_values
        return sampler(
            game, target_sem=target, max_evaluations=most, seed=seed, walk=walk, progress=progress
        )

    solution = play(game, target_sem, max_evaluations)
    nulls, notes = None, {}
    if null == "random-init":
        other = beside() if beside is not None else random_game(game)
        try:
            nulls = play(other, None, solution.evaluations if len(game) > 1 else None).per_prompt
        except NonFiniteError as error:  # random weights may overflow when trained weights do not
            notes = {"null": f"none: {error}"}
    values: dict[str, Any] = {"method": method}
    if method != "exact":
        values |= {"evaluations": solution.evaluations}
    return as_importance(
        game,
        solution,
        summary="shapley",
        options=values,
        made_by="interp.causal.shapley",
        notes=notes,
        null=nulls,
    )


def chosen_method(method: ShapleyMethod, n: int, max_evaluations: int | None) -> ShapleyMethod:
    """Return the method that "auto" selects."""
    if method not in METHODS:
        raise UnknownName("method of shapley", method, METHODS)
    if method != "auto":
        return method
    allowed = 2**_AUTO_EXACT if max_evaluations is None else max_evaluations + 2
    if n <= EXACT and 2**n <= allowed:
        return "exact"
    pair = 2 * (n - 1)
    within = 2 * pair <= (MOST if max_evaluations is None else min(max_evaluations, MOST))
    return "surrogate" if within else "permutations"


def estimate_shapley(
    game: Game,
    *,
    method: ShapleyMethod = "auto",
    max_evaluations: int | None = None,
    seed: int = 0,
    walk: Walk = "auto",
) -> RunEstimate:
    """Estimate evaluations, seconds and bytes of `shapley`; upper bounds with a target.

    A few coalitions are run and timed in the way the method runs them: sharing passes, or each
    reusing the previous one. Coalitions in a ledger take no time.
    """
    n = len(game)
    method = chosen_method(method, n, max_evaluations)
    if method == "gradients":
        return estimate_gradients(game, max_evaluations or DEFAULT)
    table, fitting = np.ones((0, n)), 0.0
    rounds: list[list[np.ndarray]] = []  # orders that the game evaluates at once
    if method == "exact":
        check_exact(n, "the exact mode", "method='permutations' or 'surrogate', or fewer heads=")
        table = subsets(n)[1:-1]
    elif method == "permutations":
        pairs, at_once = DEFAULT_PAIRS, samples_at_once(2 * (n - 1))
        if max_evaluations is not None:
            pairs = max(1, max_evaluations // max(1, 2 * (n - 1)))
        for first in range(0, pairs, at_once):
            some = range(first, min(pairs, first + at_once))
            rounds.append([order for k in some for order in sample_orders(n, seed, k, True)])
    else:
        count = min(MOST, default_size(n) if max_evaluations is None else max_evaluations)
        rounds = [check_orders(n, seed, 0, antithetic_checks(n, count))]
        table = Draws(n, seed).pairs(0, max(0, count - (n - 1) * len(rounds[0])) // 2)
        fitting = fit_seconds(n, count)
    parts = [game.estimate(table)] if len(table) else []
    if n > 1:
        parts += [estimate_walks(game, orders, n - 1, walk) for orders in rounds]
    parts.append(game.estimate(torch.zeros(1, n)))  # the empty coalition
    seconds = sum(part.seconds for part in parts) + fitting
    runs = sum(part.share * part.coalitions for part in parts[:-1])
    count = sum(part.coalitions for part in parts[:-1])
    # seconds with the clean run and the previous one, at a mixture gate that no ledger contains
    n_bytes = 2 * game.estimate(torch.full((1, n), 0.5)).n_bytes
    whole = len(table) + (n - 1) * sum(map(len, rounds))
    if method == "surrogate":
        n_bytes += 3 * 8 * whole**2
    done = (f"{whole - count} more are finished",) if whole > count else ()
    notes = (f"method {method}", *done, *game.notes)
    return RunEstimate(count, seconds, n_bytes, runs / max(1, count), notes)


def as_importance(
    game: Game,
    found: Solution,
    *,
    summary: str,
    options: dict[str, Any],
    made_by: str,
    notes: dict[str, Any],
    null: np.ndarray | None,
) -> Importance:
    """Convert a solution to an importance, with the error over prompts and samples."""
    sampling = found.sampling_sem
    largest = float(sampling.max()) if np.isfinite(sampling).all() else math.nan
    values: dict[str, Any] = {
        "v_all_minus_v_none": float((found.v_all - found.v_none).mean()),
        "efficiency_gap": found.efficiency_gap,
        "evaluations": found.evaluations,
        "sampling_sem": largest,
    }
    values |= found.notes
    for name in _IN_THE_TASK & set(values):  # a solution has no task, so its sums are of raw values
        values[name] = game.task.sign * values[name] + 0.0
    plain = make_importance(
        game,
        found.per_prompt,
        method=summary,
        options=options,
        of="presence",
        made_by=made_by,
        null=null,
        null_kind="none" if null is None else "random-init",
        sampling=(sampling, found.sampling_df),
        notes=values | notes,
    )
    return replace(
        plain, sampling_sem=sampling, evaluations=found.evaluations, sampling_df=found.sampling_df
    )
