"""Estimators that are compared with the toolkit's own, on a game that is a table of values."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from interp.causal.shapley_values.exact import exact_values
from interp.causal.shapley_values.permutations import permutation_values
from interp.causal.shapley_values.solution import subsets
from interp.causal.shapley_values.surrogate import surrogate_values
from interp.causal.shapley_values.truncated import truncated_values

Array = np.ndarray


class Table:
    """A game whose coalitions are all known: `values[coalition, prompt]`, as `subsets` orders."""

    def __init__(self, values: Array) -> None:
        self.v = torch.as_tensor(values)
        self.n = round(math.log2(len(values)))
        self.power = 2 ** torch.arange(self.n).flip(0)

    def __len__(self) -> int:
        return self.n

    def values(self, gates) -> torch.Tensor:
        """Looked up."""
        return self.v[(torch.as_tensor(gates).long() * self.power).sum(1)]


def drawn(n: int, budget: int, rng: np.random.Generator) -> Array:
    """All, none, and coalitions of uniform size, each followed by its complement."""
    rows = [np.ones(n), np.zeros(n)]
    for _ in range(budget // 2):
        gates = np.zeros(n)
        gates[rng.permutation(n)[: rng.integers(1, n)]] = 1
        rows += [gates, 1 - gates]
    return np.array(rows)


def kernel_shap(game: Table, budget: int, seed: int) -> Array:
    """Weighted least squares with the sum fixed; sizes are drawn as the weights ask, in pairs."""
    n, rng = len(game), np.random.default_rng(seed)
    size = np.arange(1, n)
    chance = 1 / (size * (n - size))
    rows = []
    for s in rng.choice(size, budget // 2, p=chance / chance.sum()):
        gates = np.zeros(n)
        gates[rng.permutation(n)[:s]] = 1
        rows += [gates, 1 - gates]
    x, y = np.array(rows), game.values(np.array(rows)).mean(1).numpy()
    high, low = game.values(np.array([np.ones(n), np.zeros(n)])).mean(1).tolist()
    # the last player's value follows from the sum, which leaves an ordinary least squares
    y = y - low - x[:, -1] * (high - low)
    phi = np.linalg.lstsq(x[:, :-1] - x[:, -1:], y, rcond=None)[0]
    return np.append(phi, high - low - phi.sum())


def regressed(fit: Callable[[Array, Array], Callable[[Array], Array]]) -> Callable[..., Array]:
    """Shapley values of a regression on sampled coalitions, from all of its own predictions."""

    def estimate(game: Table, budget: int, seed: int) -> Array:
        n = len(game)
        x = drawn(n, budget, np.random.default_rng(seed))
        predict = fit(x, game.values(x).mean(1).numpy())
        return exact_values(Table(predict(subsets(n))[:, None])).score

    return estimate


def quadratic_ridge(x: Array, y: Array) -> Callable[[Array], Array]:
    """All single players and pairs, as signs."""
    first, second = np.triu_indices(x.shape[1], 1)

    def features(gates: Array) -> Array:
        s = 2 * gates - 1
        return np.concatenate([np.ones((len(s), 1)), s, s[:, first] * s[:, second]], 1)

    f = features(x)
    penalty = 1e-2 * len(f) * np.eye(f.shape[1])
    penalty[0, 0] = 0
    weight = np.linalg.solve(f.T @ f + penalty, f.T @ y)
    return lambda gates: features(gates) @ weight


def boosted_trees(x: Array, y: Array) -> Callable[[Array], Array]:
    """Gradient boosting of scikit-learn, trees of depth 4."""
    from sklearn.ensemble import GradientBoostingRegressor

    model = GradientBoostingRegressor(
        n_estimators=300, max_depth=4, learning_rate=0.05, subsample=0.5, random_state=0
    )
    return model.fit(x, y).predict


def truncated(game: Table, budget: int, seed: int) -> Array:
    """Held and Yang."""
    return truncated_values(game, max_evaluations=budget, seed=seed).score


def permutations(game: Table, budget: int, seed: int) -> Array:
    """Single permutations."""
    return permutation_values(game, antithetic=False, max_evaluations=budget, seed=seed).score


def antithetic(game: Table, budget: int, seed: int) -> Array:
    """Each permutation with its reverse."""
    return permutation_values(game, max_evaluations=budget, seed=seed).score


def surrogate(game: Table, budget: int, seed: int) -> Array:
    """Ours: the Gaussian process, its check included in the budget."""
    return surrogate_values(game, max_evaluations=budget, seed=seed).score


ESTIMATORS: dict[str, Callable[[Table, int, int], Array]] = {
    "permutations": permutations,
    "antithetic permutations": antithetic,
    "truncated at 50 % (Held & Yang)": truncated,
    "KernelSHAP, paired": kernel_shap,
    "quadratic ridge surrogate": regressed(quadratic_ridge),
    "boosted trees surrogate": regressed(boosted_trees),
    "Gaussian process surrogate (ours)": surrogate,
}
