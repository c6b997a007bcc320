"""Rank correlations, overlaps and AUROCs against scipy, scikit-learn and counts by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from interp.core.rank_statistics import (
    auroc,
    auroc_interval,
    kendall,
    overlap_p,
    spearman,
)
from interp.core.statistics import percentile_interval


def test_correlations_equal_scipy_with_ties():
    rng = np.random.default_rng(0)
    scores = np.stack([rng.normal(size=25), rng.integers(4, size=25), rng.integers(9, size=25)])
    rho, tau = spearman(scores), kendall(scores)
    for i, j in combinations(range(3), 2):
        assert rho[i, j] == pytest.approx(stats.spearmanr(scores[i], scores[j]).statistic)
        assert tau[i, j] == pytest.approx(stats.kendalltau(scores[i], scores[j]).statistic)
    np.testing.assert_allclose(np.diag(rho), 1)
    np.testing.assert_array_equal(tau, tau.T)
    many = np.stack([rng.normal(size=300), rng.integers(5, size=300), np.ones(300)])
    large = kendall(many)  # by sorting; the same by the signs of all pairs
    sign = np.sign(many[:, :, None] - many[:, None]).reshape(3, -1)
    size = np.sqrt((sign**2).sum(1))
    want = (sign[0] @ sign[1]) / (size[0] * size[1])
    assert large[0, 1] == large[1, 0] == pytest.approx(want)
    assert large[0, 0] == 1
    assert np.isnan(large[2]).all()


def test_spearman_with_ties_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.integers(0, 4, 9).astype(float), rng.random(9).round(1)
        found = spearman(np.stack([a, b]))[0, 1]
        assert found == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
    assert np.isnan(spearman(np.stack([np.ones(5), np.arange(5.0)]))[0, 1])


def test_overlap_by_chance_is_hypergeometric():
    n, k = 7, 3
    draws = list(combinations(range(n), k))
    for least in range(k + 1):
        share = np.mean([len({0, 1, 2} & set(x)) >= least for x in draws])
        assert overlap_p(least, k, n) == pytest.approx(share)


def test_auroc_equals_sklearn_with_ties() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    for _ in range(20):
        score = rng.integers(0, 4, 30).astype(float)
        truth = rng.random(30) < 0.3
        truth[:2] = [True, False]
        assert auroc(score, truth) == pytest.approx(roc_auc_score(truth, score))
    assert np.isnan(auroc(score, np.ones(30, dtype=bool)))


def test_the_interval_of_an_auroc_is_that_of_draws_one_by_one() -> None:
    rng = np.random.default_rng(0)
    score, truth = rng.integers(0, 9, 30).astype(float), np.arange(30) < 8
    draw = np.random.default_rng(4)
    want = []
    for _ in range(100):
        some = [draw.choice(score[mask], mask.sum()) for mask in (truth, ~truth)]
        want.append(auroc(np.concatenate(some), truth))
    found = auroc_interval(score, truth, draws=100, seed=4)
    assert found == pytest.approx(tuple(percentile_interval(np.array(want))))
    assert np.isnan(auroc_interval(score, truth | True)).all()


def test_a_random_ranking_is_at_chance() -> None:
    rng = np.random.default_rng(1)
    found = [auroc(rng.random(24), np.arange(24) < 3) for _ in range(400)]
    assert np.mean(found) == pytest.approx(0.5, abs=0.03)
