"""Intervals are as wide as few numbers need, over repeated seeds; a bias is told from noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from interp.causal.ablation import leave_one_out
from interp.causal.importance import Importance
from interp.causal.shapley_values.exact import exact_values
from interp.causal.shapley_values.permutations import (
    at_least_usual,
    permutation_values,
    target_reached,
)
from interp.causal.shapley_values.solution import subsets
from interp.causal.shapley_values.surrogate import bias_check
from interp.causal.text_tasks import repeats_task
from interp.core.errors import OptionError
from interp.core.intervals import around, half_width, mean_intervals
from interp.core.standard_errors import standard_error


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


@pytest.fixture(scope="module")
def left_out(gpt2_probe) -> Importance:
    task = repeats_task(gpt2_probe, n=10, max_length=6, seed=0)
    alone = replace(task, prompts=replace(task.prompts, clusters=None))
    return leave_one_out(gpt2_probe, alone, null="none")


def drawn_importance(found: Importance, values: np.ndarray, **changed) -> Importance:
    """An importance of as many players with other values `[player, prompt]`."""
    return replace(found, per_prompt=values, clusters=None, **changed)


def test_skewed_changes_hold_their_mean_as_often_as_stated(left_out) -> None:
    """Of t intervals of eight log-normal values 83 % hold the mean."""
    rng, players = np.random.default_rng(0), len(left_out.players)
    hit, narrow = [], []
    for _ in range(40):
        x = rng.lognormal(size=(players, 8))
        frame = drawn_importance(left_out, x).to_pandas()
        hit.append(((frame["low"] <= math.exp(0.5)) & (math.exp(0.5) <= frame["high"])).mean())
        ends = around(x.mean(1), [(standard_error(x), 7.0)])
        narrow.append(((ends[:, 0] <= math.exp(0.5)) & (math.exp(0.5) <= ends[:, 1])).mean())
    assert np.mean(hit) > 0.93
    assert np.mean(narrow) < 0.87


def test_intervals_of_an_importance_are_those_of_scores_with_the_error_of_samples(
    left_out,
) -> None:
    rng, players = np.random.default_rng(1), len(left_out.players)
    x = rng.lognormal(size=(players, 12))
    x[2] = np.nan
    x[3] = 1.0
    plain = drawn_importance(left_out, x)
    chosen = mean_intervals(x)
    np.testing.assert_array_equal(plain.bounds(), chosen.ends)
    assert chosen.why_not[2] == "there is no score"
    assert plain.to_pandas()["why_no_interval"].tolist() == list(chosen.why_not)
    sampled = replace(plain, sampling_sem=np.full(players, 0.3), sampling_df=5.0, evaluations=1)
    joint = np.hypot(chosen.ends - x.mean(1)[:, None], half_width([(0.3, 5.0)]))
    want = x.mean(1)[:, None] + joint * [-1, 1]
    np.testing.assert_allclose(sampled.bounds(), want)
    unknown = replace(sampled, sampling_sem=np.full(players, np.nan))
    assert np.isnan(unknown.bounds()).all()
    why = unknown.to_pandas()["why_no_interval"]
    assert why[0] == "too few: one sample says nothing of its error"
    few = drawn_importance(left_out, x[:, :4]).to_pandas()
    assert few["why_no_interval"][0] == "too few: 4 prompts of at least 6"


def test_the_table_of_an_ablation_states_the_intervals_of_its_players(left_out) -> None:
    rows = left_out.table.to_pandas()
    assert rows[["low", "high"]].notna().any().all()
    np.testing.assert_array_equal(rows[["low", "high"]], left_out.bounds())  # one head a player
    ends = around(left_out.score, [(left_out.sem, 9.0)])
    assert (rows["low"] <= ends[:, 0]).all()
    assert (rows["low"] < ends[:, 0]).any()


def test_clusters_of_unequal_sizes_widen_no_interval_of_values_that_hardly_differ() -> None:
    rng = np.random.default_rng(2)
    labels = [i for i, size in enumerate((1, 1, 1, 2, 2, 1, 3, 1, 2, 1, 1)) for _ in range(size)]
    x = 5 + 0.05 * rng.normal(size=(3, len(labels)))
    ends = mean_intervals(x, clusters=labels).ends
    assert (np.diff(ends, axis=1) < 0.4).all()
