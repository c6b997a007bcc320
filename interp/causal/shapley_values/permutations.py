"""Shapley values from permutations of the players, each with its reverse."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int

from interp.causal.game.chain import Playable, Walk, walks
from interp.causal.shapley_values.solution import (
    MIN_PAIRS,
    Solution,
    Told,
    check_budget,
    end_values,
    game_name,
)
from interp.core.intervals import half_width
from interp.core.standard_errors import standard_error

DEFAULT_PAIRS = 16
LEAST_SAMPLES = 4
"""Samples from which an interval holds the exact value as often as it says
(benchmarks/interval_coverage.md)."""
_ROUND = 128  # coalitions that may share batches before the error is checked again


def permutation_values(
    game: Playable,
    *,
    antithetic: bool = True,
    target_sem: float | None = None,
    max_evaluations: int | None = None,
    seed: int = 0,
    steps: int | None = None,
    walk: Walk = "auto",
    progress: Told = None,
) -> Solution:
    """Estimate mean marginal contributions over random orders (Castro et al. 2009).

    Every order ends with the empty coalition, so its values add up to v(all) - v(none) exactly.
    """
    n, twin = len(game), 2 if antithetic else 1
    whole = steps is None or steps >= n
    steps = n if whole or steps is None else steps
    per_order = n - 1 if whole else steps
    per_sample = twin * per_order
    why = "one antithetic pair of permutations" if antithetic else "one permutation"
    check_budget(n, target_sem, max_evaluations, least=per_sample, why=why)
    v_all, v_none = end_values(game)
    most = math.inf if max_evaluations is None else max_evaluations // max(1, per_sample)
    if max_evaluations is None and target_sem is None:
        most = DEFAULT_PAIRS * 2 // twin
    if n == 1:
        most = 1
    total = np.zeros((n, len(v_all)))
    means: list[np.ndarray] = []  # one per sample, over prompts
    while len(means) < most and not target_reached(means, target_sem):
        count = int(min(samples_at_once(per_sample), most - len(means)))
        orders = [
            o for k in range(count) for o in sample_orders(n, seed, len(means) + k, antithetic)
        ]
        before, report = len(means) * per_sample, None
        if progress is not None:
            aim = most * per_sample if most < math.inf else before + count * per_sample
            report = lambda k, b=before, a=aim: progress(game_name(game), b + k, int(a))  # noqa: E731
        inside = np.zeros((len(orders), 0, len(v_all)))
        if per_order:
            inside = walks(game, orders, steps=per_order, walk=walk, done=report).numpy()
        for k in range(0, len(orders), twin):
            each = [
                contributions(order, v_all, path, v_none if whole else None)
                for order, path in zip(orders[k : k + twin], inside[k : k + twin], strict=True)
            ]
            sample = np.mean(each, 0)
            total += sample
            means.append(sample.mean(1))
    sem = at_least_usual(standard_error(np.stack(means, -1))) if n > 1 else np.zeros(1)
    df = len(means) - 1 if n > 1 else math.inf
    notes = {}
    if n > 1 and len(means) < LEAST_SAMPLES:
        what = "pairs of orders" if antithetic else "orders"
        notes["few_samples"] = (
            f"{len(means)} {what}: too few for a reliable error, use {LEAST_SAMPLES} or more"
        )
    return Solution(total / len(means), sem, len(means) * per_sample, v_all, v_none, notes, df)


def samples_at_once(per_sample: int) -> int:
    """Return the number of samples that share passes before the error is checked again."""
    return max(1, _ROUND // max(1, per_sample))


def contributions(
    order: Int[np.ndarray, " player"],
    v_all: Float[np.ndarray, " prompt"],
    inside: Float[np.ndarray, "step prompt"],
    v_none: Float[np.ndarray, " prompt"] | None,
) -> Float[np.ndarray, "player prompt"]:
    """Return the loss when each player is removed; 0 for those that are never removed."""
    path = np.concatenate([v_all[None], inside, *([] if v_none is None else [v_none[None]])])
    losses = np.zeros((len(order), len(v_all)))
    losses[order[: len(path) - 1]] = path[:-1] - path[1:]
    return losses


def at_least_usual(sem: Float[np.ndarray, " player"]) -> Float[np.ndarray, " player"]:
    """Raise all errors to at least the root mean square of all players' errors.

    A player's contribution often takes one of few values, some of them only for rare coalitions: a
    few samples that happen to agree then give an error that is far too small (measured in
    benchmarks/interval_coverage.md).
    """
    return np.maximum(sem, np.sqrt((sem**2).mean()))


def target_reached(
    means: list[np.ndarray], target_sem: float | None, least: int = MIN_PAIRS
) -> bool:
    """Return True if every player's error is small enough, from at least `least` samples.

    An error from few samples is enlarged by the ratio of its t interval to that of many samples.
    """
    if target_sem is None or len(means) < least:
        return False
    sem = standard_error(np.stack(means, -1))
    widened = half_width([(sem, len(means) - 1)]) / half_width([(1.0, math.inf)])
    return bool((widened <= target_sem).all())


def sample_orders(n: int, seed: int, k: int, antithetic: bool) -> list[Int[np.ndarray, " player"]]:
    """Return the orders of the k-th sample."""
    order = np.random.default_rng([seed, k]).permutation(n)
    return [order, order[::-1]] if antithetic else [order]
