"""Shapley values from all coalitions."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from interp.causal.game.chain import Playable
from interp.causal.shapley_values.solution import (
    Solution,
    Told,
    check_budget,
    check_exact,
    end_values,
    game_name,
    subsets,
    values,
)

_CHUNK = 4096


def shapley_weights(n: int) -> Float[np.ndarray, " size"]:
    """Return the weight of a marginal contribution to coalitions of s = 0 .. n-1 others.

    The weight is s! (n-1-s)! / n!, computed by logarithms, since a factorial overflows beyond 170
    players.
    """
    return np.exp([math.lgamma(s + 1) + math.lgamma(n - s) - math.lgamma(n + 1) for s in range(n)])


def exact_values(
    game: Playable,
    *,
    weights: Float[np.ndarray, " size"] | None = None,
    progress: Told = None,
) -> Solution:
    """Compute weighted sums of marginal contributions over all 2^n coalitions."""
    n = len(game)
    check_budget(n, None, None, least=0, why="")
    check_exact(n, "the exact mode", "method='permutations' or 'surrogate', or fewer heads=")
    weights = shapley_weights(n) if weights is None else weights
    table = subsets(n)
    v_all, v_none = end_values(game)
    totals = np.outer(_coefficients(table[-1:], weights)[0], v_all)
    totals += np.outer(_coefficients(table[:1], weights)[0], v_none)
    inner, done = table[1:-1], 0
    for part in np.array_split(inner, max(1, math.ceil(len(inner) / _CHUNK))):
        if not len(part):
            continue
        report = None
        if progress is not None:
            report = lambda k, d=done: progress(game_name(game), d + k, len(inner))  # noqa: E731
        totals += _coefficients(part, weights).T @ values(game, part, report)
        done += len(part)
    return Solution(totals, np.zeros(n), len(inner), v_all, v_none)


def _coefficients(
    gates: Float[np.ndarray, "coalition player"], weights: Float[np.ndarray, " size"]
) -> Float[np.ndarray, "coalition player"]:
    """Return the coefficient of each coalition's value for each player, by membership."""
    size = gates.sum(1).astype(int)
    with_it = weights[np.clip(size - 1, 0, None)][:, None]
    without = weights[np.clip(size, None, len(weights) - 1)][:, None]
    return np.where(gates == 1, with_it, -without)
