"""Rank correlations, overlaps and AUROCs by independent formulas."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import pytest
from core.formulas import RNG, holds, not_held
from scipy import stats

from interp.core import rank_statistics


@holds("ranks", "spearman", "paired_spearman", "kendall", "_normalised", "top_k", "overlap_p")
@holds("auroc", "auroc_interval")
def test_ranks() -> None:
    table = RNG.integers(0, 6, (4, 12)).astype(float)
    table[3] = 2.0
    assert rank_statistics.ranks(table).tolist() == [
        [sum(o < v for o in row) + (sum(o == v for o in row) + 1) / 2 for v in row] for row in table
    ]
    rho, tau = rank_statistics.spearman(table), rank_statistics.kendall(table)
    pairs = rank_statistics.paired_spearman(table[[0, 0, 1, 0]], table[[1, 2, 2, 3]])
    for at, (i, j) in enumerate(((0, 1), (0, 2), (1, 2))):
        a, b = table[i], table[j]
        assert rho[i, j] == rho[j, i] == pytest.approx(stats.spearmanr(a, b).statistic)
        assert pairs[at] == pytest.approx(rho[i, j])
        assert tau[i, j] == tau[j, i] == pytest.approx(stats.kendalltau(a, b).statistic)
    assert np.isnan(pairs[3])
    for matrix in (rho, tau):
        assert np.diag(matrix)[:3].tolist() == [1.0, 1.0, 1.0]
        assert np.isnan(matrix[3]).all()
        assert np.isnan(matrix[:, 3]).all()
    opposite = rank_statistics.spearman(np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    assert opposite[0, 1] == -1
    for n in (256, 257):  # both ways of counting pairs
        wide = RNG.integers(0, 40, (2, n)).astype(float)
        want = stats.kendalltau(*wide).statistic
        assert rank_statistics.kendall(wide)[0, 1] == pytest.approx(want)
    assert rank_statistics.top_k(np.array([1.0, 3.0, 3.0, 2.0, 3.0]), 2) == {1, 2}
    assert rank_statistics.top_k(np.array([1.0, -3.0]), 0) == set()
    n, k = 9, 4
    chance = [math.comb(k, x) * math.comb(n - k, k - x) / math.comb(n, k) for x in range(k + 1)]
    for least in range(k + 1):
        assert rank_statistics.overlap_p(least, k, n) == pytest.approx(sum(chance[least:]))
    score, truth = RNG.integers(0, 5, 14).astype(float), np.arange(14) < 5
    wins = [(a > b) + (a == b) / 2 for a in score[truth] for b in score[~truth]]
    assert rank_statistics.auroc(score, truth) == pytest.approx(np.mean(wins))
    assert math.isnan(rank_statistics.auroc(score, truth & False))
    drawn, rng = [], np.random.default_rng(6)
    for _ in range(150):
        a, b = (score[m][rng.integers(0, m.sum(), (1, m.sum()))[0]] for m in (truth, ~truth))
        drawn.append(np.mean([(x > y) + (x == y) / 2 for x in a for y in b]))
    for tails in ((0.025, 0.975), (0.1, 0.6)):
        found = rank_statistics.auroc_interval(score, truth, draws=150, seed=6, tails=tails)
        assert found == pytest.approx(tuple(np.quantile(drawn, tails)))
    assert np.isnan(rank_statistics.auroc_interval(score, truth & False)).all()


@holds("up_to_rounding")
def test_scores_that_rounding_can_swap_are_tied() -> None:
    scores = np.array([[1.0, 0.5, 0.5 + 1e-9, 0.0], [4.0, 3.0, 2.0, 1.0]])
    tied = np.array([1.0, 0.5, 0.5, 0.0])
    for name, known in (("spearman", stats.spearmanr), ("kendall", stats.kendalltau)):
        measure = rank_statistics.up_to_rounding(getattr(rank_statistics, name))
        assert measure(scores)[0, 1] == pytest.approx(known(tied, scores[1]).statistic)
        assert measure(scores)[0, 1] != pytest.approx(known(*scores).statistic)


@pytest.mark.parametrize("module", [rank_statistics], ids=lambda m: m.__name__)
def test_every_function_has_its_formula(module: ModuleType) -> None:
    """A new function of these modules needs an independent formula here."""
    assert not not_held(module)
