"""Shapley values from derivatives at random coalitions: every run tells of every player.

The marginal contribution of a player is the integral of the derivative by its gate, from out to in.
The trapezoid rule takes the mean of the derivatives at both ends, and one backward pass gives those
of all players at the end where each of them is. So a coalition costs about 2.3 forward passes and
adds to the estimate of every player, where a coalition's value alone adds one equation for all.

The error of the rule is a bias, zero if the value is quadratic in each gate, and large for a head
that works as a switch, as some of planted models do. So part of the runs check it: a player changes
its side, and its true contribution is compared with the rule's. What they miss enters the error of
every player and is reported as `bias_check`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from interp.causal.game.game import Game
from interp.causal.game.interface import RunEstimate
from interp.causal.gate_derivatives import coalition_gradients
from interp.causal.shapley_values.permutations import at_least_usual
from interp.causal.shapley_values.solution import (
    Array,
    Solution,
    Told,
    check_budget,
    end_values,
    game_name,
)
from interp.causal.shapley_values.surrogate import Draws
from interp.core.clusters import jackknife_error
from interp.core.errors import OptionError

LEAST, DEFAULT = 20, 36
"""Coalitions: fewer give no reliable error; by default as many as take about 95 forward passes."""
PASSES = 2.3
"""Forward passes that take about as long as a coalition with its derivatives.

Measured in benchmarks/ablation.md: 2.1 to 2.6.
"""
_CHECKED = 5  # one in this many coalitions checks another one
_MOST = 4096  # coalitions where only an error is asked for


def gradient_values(
    game: Game,
    *,
    target_sem: float | None = None,
    max_evaluations: int | None = None,
    seed: int = 0,
    progress: Told = None,
) -> Solution:
    """Estimate Shapley values from derivatives at coalitions of random size and their complements.

    A player has its derivative at the end where it is in from the coalitions with it, and at the
    other end from those without, each weighted so that the number of the other players is uniform.
    The error over samples is that of the jackknife over pairs, and the root mean square of what the
    checks miss; the sum is corrected to v(all) - v(none).
    """
    n = len(game)
    why = "an error over pairs of coalitions"
    check_budget(n, target_sem, max_evaluations, least=LEAST, why=why)
    if n < 3:
        raise OptionError(f"{n} players need no estimate; use method='exact'")
    most = max_evaluations or (DEFAULT if target_sem is None else _MOST)
    v_all, v_none = end_values(game)
    draws = Draws(n, seed)
    rng = np.random.default_rng([seed, 4])
    gates, checks = np.zeros((0, n)), _Checks(game, rng)
    derivatives: list[Array] = []  # one per coalition, [player, prompt]
    while True:
        wanted = most if target_sem is None else min(most, max(DEFAULT, 2 * len(gates)))
        n_checks = wanted // _CHECKED
        gates = np.concatenate([gates, draws.pairs(len(gates) // 2, (wanted - n_checks) // 2)])
        for row in gates[len(derivatives) :]:
            derivatives.append(coalition_gradients(game, torch.as_tensor(row)))
            if progress is not None:
                progress(game_name(game), len(derivatives) + len(checks.misses), most)
        slopes = np.stack(derivatives)
        checks.add(n_checks, gates, slopes)
        solution = solved(gates, slopes, v_all, v_none, checks)
        enough = target_sem is not None and bool((solution.sampling_sem <= target_sem).all())
        if enough or wanted + 2 > most:
            return solution


class _Checks:
    """True contributions beside the rule's, of players that are drawn by half of their size."""

    def __init__(self, game: Game, rng: np.random.Generator) -> None:
        self.game, self.rng = game, rng
        self.misses: list[float] = []
        self.weights: list[float] = []

    def add(self, wanted: int, gates: Array, slopes: Array) -> None:
        """Check other coalitions until there are as many as wanted."""
        size = np.abs(_trapezoid(gates, slopes).mean(1))
        n = len(size)
        chance = 0.5 / n + 0.5 * size / size.sum() if size.any() else np.full(n, 1 / n)
        for _ in range(len(self.misses), wanted):
            at, player = int(self.rng.integers(len(gates))), int(self.rng.choice(n, p=chance))
            other = gates[at].copy()
            other[player] = 1 - other[player]
            slope = coalition_gradients(self.game, torch.as_tensor(other))[player].mean()
            both = self.game.values(np.stack([gates[at], other])).numpy().mean(1)
            true = (both[0] - both[1]) * (2 * gates[at][player] - 1)
            self.misses.append(float(true - (slope + slopes[at][player].mean()) / 2))
            self.weights.append(1 / (n * chance[player]))

    @property
    def size(self) -> float:
        """Root mean square miss of a contribution, as if all players were drawn alike."""
        if not self.misses:
            return 0.0
        return math.sqrt(np.mean(np.square(self.misses) * self.weights))


def solved(
    gates: Float[Array, "coalition player"],
    slopes: Float[Array, "coalition player prompt"],
    v_all: Float[Array, " prompt"],
    v_none: Float[Array, " prompt"],
    checks: _Checks | None = None,
) -> Solution:
    """Return the estimate from the derivatives at pairs of coalitions."""
    whole = _trapezoid(gates, slopes)
    gap = (v_all - v_none) - whole.sum(0)
    share = np.abs(whole.mean(1))
    share = share / share.sum() if share.any() else np.full(len(share), 1 / len(share))
    pairs = len(gates) // 2
    mean = slopes.mean(2, keepdims=True)
    without = np.stack(
        [
            _trapezoid(np.delete(gates, rows, 0), np.delete(mean, rows, 0))[:, 0]
            for rows in (slice(2 * k, 2 * k + 2) for k in range(pairs))
        ]
    )
    spread = at_least_usual(jackknife_error(without))
    notes: dict[str, Any] = {"efficiency_gap_before": float(gap[np.abs(gap).argmax()])}
    bias, n_checks = 0.0, 0
    if checks is not None:
        bias, n_checks = checks.size, len(checks.misses)
        usual = float(np.sqrt((spread**2).mean()))
        notes["bias_check"] = (
            f"{'bias' if bias > usual else 'no bias'} detected: {n_checks} contributions miss "
            f"{bias:.3g} (root mean square), beside an error over samples of {usual:.3g}"
        )
        notes["about_forward_passes"] = round(PASSES * (len(gates) + n_checks) + 2 * n_checks, 1)
    return Solution(
        whole + share[:, None] * gap,
        np.hypot(spread, bias),
        len(gates) + n_checks,
        v_all,
        v_none,
        notes,
        sampling_df=pairs - 1,
    )


def _trapezoid(
    gates: Float[Array, "coalition player"], slopes: Float[Array, "coalition player prompt"]
) -> Float[Array, "player prompt"]:
    """Return the mean of both ends; a player that never was at one of them has the other's."""
    n = gates.shape[1]
    size = gates.sum(1, keepdims=True)
    ends, seen = [], []
    for inside in (gates / size, (1 - gates) / (n - size)):
        total = inside.sum(0)[:, None]
        ends.append(np.einsum("cp,cpk->pk", inside, slopes) / np.where(total > 0, total, 1))
        seen.append(total > 0)
    return (ends[0] + ends[1]) / np.maximum(1, seen[0].astype(int) + seen[1])


def estimate_gradients(game: Game, count: int) -> RunEstimate:
    """Estimate the cost of `gradient_values` from the clean run."""
    assert len(game.clean)  # has been run and timed
    passes = PASSES * count + 2 * (count // _CHECKED)
    seconds = passes * sum(game.seconds.values())
    n_bytes = 4 * game.estimate(torch.full((1, len(game)), 0.5)).n_bytes
    return RunEstimate(count, seconds, n_bytes, passes / count, ("method gradients", *game.notes))
