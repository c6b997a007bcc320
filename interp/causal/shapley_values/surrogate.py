"""Shapley values from a surrogate model of the game, checked against the game itself.

The package shapiq (1.4) has regressions, trees and sampling for games of one number per coalition,
without an error of the values; here each prompt has its own, and the posterior gives the error.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.causal.game.chain import Playable, Walk, removals, walks
from interp.causal.shapley_values.gaussian_process import Surrogate, fit_process
from interp.causal.shapley_values.permutations import contributions
from interp.causal.shapley_values.solution import (
    Solution,
    Told,
    check_budget,
    end_values,
    game_name,
    values,
)
from interp.core.errors import OptionError
from interp.core.standard_errors import standard_error

Array = np.ndarray
MOST = 8192
"""Maximum number of coalitions of a surrogate: its time grows with their cube."""
_TRIES = 8
_CHECK_SHARE = 4  # one in this many evaluations is used for the check


def surrogate_values(
    game: Playable,
    *,
    target_sem: float | None = None,
    max_evaluations: int | None = None,
    seed: int = 0,
    walk: Walk = "auto",
    progress: Told = None,
) -> Solution:
    """Fit a Gaussian process to sampled coalitions and return its Shapley values.

    Most evaluations are coalitions of uniform size, each with its complement. About a quarter, and
    at least one pair, are antithetic permutations that the first fit does not use: the difference
    of its values from theirs consists of bias and sampling noise (`surrogate_bias`, the root mean
    square over players, `surrogate_bias_sem`, the value expected from noise alone, and
    `bias_check`, whether the bias exceeds the noise). Then they are added to the fit. The remaining
    difference of the sum from v(all) - v(none) is distributed over the players in proportion to
    their variance.

    The error over samples is the posterior standard deviation of the process, enlarged if the check
    finds larger differences than the process expects (`calibration`).
    """
    n = len(game)
    pair = max(1, 2 * (n - 1))
    why = "the surrogate, with one antithetic pair of permutations to check it,"
    check_budget(n, target_sem, max_evaluations, least=2 * pair, why=why)
    most = max_evaluations
    if most is None:
        most = MOST if target_sem is not None else default_size(n)
    most = min(most, MOST)
    if most < 2 * pair:
        raise OptionError(
            f"{n} players are too many for a surrogate with at most {MOST} coalitions; use "
            f"method='permutations'"
        )
    budget = most if target_sem is None else min(most, max(128, 4 * n, 2 * pair))
    sampled = _Sampled(game, seed, walk, progress, most)
    while True:
        solution = sampled.solve(budget)
        enough = target_sem is None or bool((solution.sampling_sem <= target_sem).all())
        if enough or budget == most:
            return solution
        budget = min(most, 2 * budget)


def bias_check(bias: Float[Array, " player"], sem: Float[Array, " player"], pairs: int) -> str:
    """Describe the surrogate's bias, as far as the pairs of permutations can detect it.

    The root mean square difference between fit and check, over players, includes the noise of the
    check itself, which dominates with few pairs. A bias is detected if its square exceeds the 95 %
    quantile under noise alone: of an F distribution, with the players' degrees of freedom over
    those of their errors.
    """
    size, noise = (float(np.sqrt((x**2).mean())) for x in (bias, sem))
    text = f"{size:.3g} ± {noise:.3g} from {pairs} pair{'s' * (pairs != 1)} of permutations"
    if pairs < 2:
        return f"{size:.3g} from one pair of permutations, which cannot separate bias from noise"
    from scipy.stats import f

    most = noise**2 * float(f.isf(0.05, len(bias), len(bias) * (pairs - 1)))
    if size**2 <= most:
        return f"no bias detected: {text}"
    return f"bias detected: {text}; about {math.sqrt(size**2 - noise**2):.3g} beyond the noise"


def default_size(n: int) -> int:
    """Return the default number of evaluated coalitions for n players."""
    return max(128, 16 * n, 4 * (n - 1))


def antithetic_checks(n: int, budget: int) -> int:
    """Return the number of antithetic pairs, within a budget of coalitions, that check the fit."""
    per_pair = max(1, 2 * (n - 1))
    pairs = max(1, budget // _CHECK_SHARE // per_pair)
    return max(2, pairs) if budget >= 6 * per_pair else pairs  # its bias needs a standard error


def check_orders(n: int, seed: int, have: int, pairs: int) -> list[Array]:
    """Return the orders of the pairs after the first `have`, each followed by its reverse."""
    orders = [np.random.default_rng([seed, 1, k]).permutation(n) for k in range(have, pairs)]
    return [way for order in orders for way in (order, order[::-1])]


class Draws:
    """Coalitions of uniform size with their complements; the k-th depends on the seed and k."""

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.seed = n, seed
        self.drawn: set[bytes] = set()

    def pairs(self, have: int, wanted: int) -> Float[Array, "coalition player"]:
        """Return the pairs after the first `have`; they must be requested in order."""
        new = [self._one(k) for k in range(have, wanted)]
        return np.concatenate([np.zeros((0, self.n)), *(np.stack([z, 1 - z]) for z in new)])

    def _one(self, k: int) -> Float[Array, " player"]:
        rng = np.random.default_rng([self.seed, 2, k])
        gates = np.zeros(self.n)
        for _ in range(_TRIES):  # small sizes have few coalitions, so repeats are skipped
            gates = np.zeros(self.n)
            gates[rng.permutation(self.n)[: rng.integers(1, max(2, self.n))]] = 1
            if gates.tobytes() not in self.drawn:
                break
        self.drawn |= {gates.tobytes(), (1 - gates).tobytes()}
        return gates


class _Sampled:
    """Coalitions evaluated so far; those of a smaller budget are reused in a larger one."""

    def __init__(self, game: Playable, seed: int, walk: Walk, progress: Told, most: int) -> None:
        self.game, self.seed = game, seed
        self.walk: Walk = walk
        self.progress, self.most, self.done = progress, most, 0
        self.v_all, self.v_none = end_values(game)
        n = len(game)
        self.gates = np.stack([np.ones(n), np.zeros(n)])
        self.values = np.stack([self.v_all, self.v_none])
        self.orders: list[Array] = []
        self.draws = Draws(n, seed)
        self.paths = np.zeros((0, max(0, n - 1), len(self.v_all)))

    def solve(self, budget: int) -> Solution:
        n, pairs = len(self.game), antithetic_checks(len(self.game), budget)
        self._check(pairs)
        self._sample((budget - pairs * 2 * (n - 1)) // 2)
        first = fit_process(self.gates, self.values)
        notes = self._bias(first)
        inside = np.concatenate([removals(n, order, n - 1) for order in self.orders])
        gates = np.concatenate([self.gates, inside])
        seen = np.concatenate([self.values, self.paths.reshape(len(inside), -1)])
        per_prompt, sem = fit_process(gates, seen, like=first).shapley()
        gap = self.v_all - self.v_none - per_prompt.sum(0)
        notes["efficiency_gap_before"] = float(gap[np.abs(gap).argmax()])
        share = sem**2 / (sem**2).sum() if sem.any() else np.full(n, 1 / n)
        per_prompt = per_prompt + share[:, None] * gap
        sem = sem * max(1.0, notes["calibration"])
        # the calibration is estimated from the few orders of the check
        df = max(3, len(self.orders) - 1)
        return Solution(
            per_prompt, sem, len(gates) - 2, self.v_all, self.v_none, notes, sampling_df=df
        )

    def _check(self, pairs: int) -> None:
        n = len(self.game)
        new = check_orders(n, self.seed, len(self.orders) // 2, pairs)
        if new and n > 1:
            stated = None if self.progress is None else self._summary_of
            paths = walks(self.game, new, steps=n - 1, walk=self.walk, done=stated)
            self.paths = np.concatenate([self.paths, paths.numpy()])
            self.done += len(new) * (n - 1)
        self.orders += new

    def _sample(self, pairs: int) -> None:
        gates = self.draws.pairs((len(self.gates) - 2) // 2, pairs)
        if len(gates):
            stated = None if self.progress is None else self._summary_of
            self.values = np.concatenate([self.values, values(self.game, gates, stated)])
            self.gates = np.concatenate([self.gates, gates])
            self.done += len(gates)

    def _summary_of(self, done: int) -> None:
        assert self.progress is not None
        self.progress(game_name(self.game), self.done + done, self.most)

    def _bias(self, first: Surrogate) -> dict[str, Any]:
        """Compare the fit with the game on permutations that it has not used."""
        n = len(self.game)
        misses, errors, expected, spread = [], [], [], []
        ends_of = first.predict(np.stack([np.ones(n), np.zeros(n)]))[0]
        for order, path in zip(self.orders, self.paths, strict=True):
            mean, sd = first.predict(removals(n, order, n - 1))
            misses.append(
                contributions(order, self.v_all - ends_of[0], path - mean, self.v_none - ends_of[1])
            )
            errors.append((path - mean).mean(1))
            expected.append(sd)
            spread.append(path.mean(1))
        each = [np.mean(misses[k : k + 2], 0).mean(1) for k in range(0, len(misses), 2)]
        bias, sem = np.mean(each, 0), standard_error(np.stack(each, -1))
        error, truth = np.concatenate(errors), np.concatenate(spread)
        notes: dict[str, Any] = {
            "bias_check": bias_check(bias, sem, len(each)),
            "surrogate_bias": float(np.sqrt((bias**2).mean())),
            "surrogate_bias_sem": float(np.sqrt((sem**2).mean())),
            "check_pairs": len(each),
        }
        notes["calibration"], notes["check_r2"] = 1.0, math.nan
        if len(error):
            notes["calibration"] = float(np.sqrt((error**2 / np.concatenate(expected) ** 2).mean()))
            if truth.std() > 0:
                notes["check_r2"] = float(1 - (error**2).mean() / truth.var())
        return notes
