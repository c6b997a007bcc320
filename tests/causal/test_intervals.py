"""Intervals are as wide as few numbers need, over repeated seeds; a bias is told from noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from interp.causal.importance import standard_error
from interp.causal.shapley_values.exact import exact_values
from interp.causal.shapley_values.permutations import (
    at_least_usual,
    permutation_values,
    target_reached,
)
from interp.causal.shapley_values.solution import subsets
from interp.causal.shapley_values.surrogate import bias_check
from interp.core.errors import OptionError
from interp.core.intervals import around, half_width


class Backup:
    """Six players of whom some stand in for others: contributions take few values."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.weight = rng.normal(size=6) / 10

    def __len__(self) -> int:
        return 6

    def values(self, gates):
        g = np.asarray(gates, dtype=float)
        pair = np.maximum(g[:, 0], g[:, 1]) * g[:, 2]
        return (g @ self.weight + 2 * pair)[:, None]


def test_the_t_quantile_of_one_error_and_the_joint_one_of_two() -> None:
    assert half_width([(1.0, 3.0)]) == pytest.approx(stats.t.isf(0.025, 3))
    assert half_width([(1.0, math.inf)]) == pytest.approx(stats.norm.isf(0.025))
    joint = (9 + 16) ** 2 / (81 / 4 + 256 / 7)  # Welch and Satterthwaite
    assert half_width([(3.0, 4.0), (4.0, 7.0)]) == pytest.approx(stats.t.isf(0.025, joint) * 5)
    assert half_width([(3.0, 4.0), (0.0, math.inf)]) == pytest.approx(stats.t.isf(0.025, 4) * 3)
    assert half_width([(0.0, 3.0)]) == 0
    assert math.isnan(half_width([(1.0, 0.0)]))
    assert math.isnan(half_width([(math.nan, 3.0)]))
    np.testing.assert_allclose(around(np.array([1.0]), [(0.0, 5.0)]), [[1.0, 1.0]])
    with pytest.raises(OptionError, match="between 0 and 1"):
        half_width([(1.0, 3.0)], level=95)


@pytest.mark.parametrize("n", [3, 8])
def test_a_mean_of_few_numbers_is_covered_as_often_as_it_says(n: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, n))
    low, high = around(x.mean(1), [(standard_error(x), n - 1.0)]).T
    share = ((low <= 0) & (high >= 0)).mean()
    assert abs(share - 0.95) < 3 * math.sqrt(0.95 * 0.05 / 4000)
    narrow = np.abs(x.mean(1)) <= 1.96 * standard_error(x)
    assert narrow.mean() < 0.935  # what 1.96 standard errors hold


@pytest.mark.parametrize("pairs", [4, 8])
def test_few_permutations_cover_the_exact_values(pairs: int) -> None:
    game = Backup()
    exact = exact_values(game).score
    hit, narrow = [], []
    for seed in range(120):
        found = permutation_values(game, max_evaluations=pairs * 10, seed=seed)
        assert found.sampling_df == pairs - 1
        low, high = found.sampling_interval.T
        hit.append(((low <= exact + 1e-9) & (exact - 1e-9 <= high)).mean())
        narrow.append((np.abs(found.score - exact) <= 1.96 * found.sampling_sem + 1e-9).mean())
    error = np.std(hit, ddof=1) / math.sqrt(120)
    assert np.mean(hit) + 2 * error >= 0.95
    assert np.mean(narrow) <= np.mean(hit)


def test_an_error_is_at_least_the_usual_one_and_stopping_counts_few_samples() -> None:
    np.testing.assert_allclose(at_least_usual(np.array([0.0, 3.0, 4.0])), [math.sqrt(25 / 3), 3, 4])
    samples = [np.array([x]) for x in (-1.0, 1.0) * 4]
    sem = standard_error(np.array([[-1.0, 1.0] * 4]))[0]
    assert not target_reached(samples, sem)  # eight samples: 2.36 in place of 1.96
    assert target_reached(samples, sem * stats.t.isf(0.025, 7) / stats.norm.isf(0.025) + 1e-9)
    assert not target_reached(samples[:4], 100.0)
    few = permutation_values(Backup(), max_evaluations=20)
    assert "2 pairs of orders: too few" in few.notes["few_samples"]
    assert "few_samples" not in permutation_values(Backup(), max_evaluations=40).notes
    assert len(subsets(6)) == 64


def test_a_bias_is_detected_only_beyond_the_noise_of_its_check() -> None:
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(400):
        each = rng.normal(size=(4, 20))  # four pairs, no bias
        sem = standard_error(each.T)
        found += bias_check(each.mean(0), sem, 4).startswith("bias detected")
    assert found / 400 < 0.09
    shifted = rng.normal(size=(4, 20)) + 3
    told = bias_check(shifted.mean(0), standard_error(shifted.T), 4)
    assert told.startswith("bias detected: ")
    assert "beyond the noise" in told
    quiet = bias_check(np.array([0.045, -0.045]), np.array([0.042, 0.042]), 2)
    assert quiet == "no bias detected: 0.045 ± 0.042 from 2 pairs of permutations"
    assert "cannot separate" in bias_check(np.ones(3), np.full(3, math.nan), 1)
