"""Standard errors over clusters and p values of t and of random weights by formulas."""

from __future__ import annotations

import math
import statistics as stdlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from core.formulas import LABELS, X, by_steps, holds, jackknife, not_held, sem
from scipy import stats

from interp.core import clusters, standard_errors


@holds("standard_error", "jackknife_error", "cluster_summary", "score_columns", "members")
def test_standard_errors() -> None:
    want = [sem(x) for x in X]
    assert standard_errors.standard_error(X) == pytest.approx(want)
    assert float(standard_errors.standard_error(X[0])) == pytest.approx(stats.sem(X[0]))
    assert standard_errors.standard_error(X, list(range(11))) == pytest.approx(want)
    assert np.isnan(standard_errors.standard_error(X[:, :1])).tolist() == [True] * 3
    by_cluster = [jackknife(lambda kept, x=x: x[kept].mean(), LABELS) for x in X]
    assert standard_errors.standard_error(X, LABELS) == pytest.approx(by_cluster)
    one_missing = X.copy()
    one_missing[1, 4] = np.nan
    error = standard_errors.standard_error(one_missing, LABELS)
    assert error[[0, 2]] == pytest.approx([by_cluster[0], by_cluster[2]])
    assert np.isnan(error[1])

    left = np.array([x[np.arange(11) != i].mean() for x in X for i in range(11)]).reshape(3, 11)
    assert clusters.jackknife_error(left.T) == pytest.approx(want)
    a, b = X[0], X[1] ** 2
    ratios = np.array([np.delete(a, i).sum() / np.delete(b, i).sum() for i in range(11)])
    wanted = jackknife(lambda kept: a[kept].sum() / b[kept].sum(), list(range(11)))
    assert float(clusters.jackknife_error(ratios)) == pytest.approx(wanted)

    found = clusters.cluster_summary(X.T, LABELS)
    assert (found.score, found.sem) == (pytest.approx(X.mean(1)), pytest.approx(by_cluster))
    assert (found.n, found.clusters) == (11, 6)
    # a large mean keeps its digits, and rounding of equal values is no error
    far = clusters.cluster_summary(X.T + 1e9, LABELS)
    assert far.sem == pytest.approx(by_cluster, rel=1e-5)
    assert clusters.cluster_summary(np.full((11, 1), 0.1) * 3, LABELS).sem.tolist() == [0.0]
    found = clusters.cluster_summary(one_missing.T, LABELS)  # the trial is left out of all heads
    kept = [i for i in range(11) if i != 4]
    x = [jackknife(lambda on, x=x: x[kept][on].mean(), [LABELS[i] for i in kept]) for x in X]
    assert found.sem == pytest.approx(x)
    assert (found.n, found.clusters) == (10, 6)
    nothing = clusters.cluster_summary(np.full((3, 2), np.nan))
    assert (nothing.n, nothing.clusters, nothing.score.shape) == (0, 0, (2,))
    alone = clusters.cluster_summary(X[:, :2].T, ["a", "a"])
    assert (alone.clusters, alone.score) == (1, pytest.approx(X[:, :2].mean(1)))
    assert np.isnan(alone.sem).all()

    columns = clusters.score_columns(one_missing, LABELS)
    assert columns["score"][1] == pytest.approx(np.nanmean(one_missing[1]))
    assert columns["sem"] == pytest.approx([by_cluster[0], x[1], by_cluster[2]])
    assert (columns["n"], columns["clusters"]) == ([11, 10, 11], [6, 6, 6])
    assert clusters.members(list("baab"), np.array([1, 0, 1, 1], bool)).tolist() == [0, 1, 0]


@holds("t_test_p", "difference_rows")
def test_p_values_of_t() -> None:
    from interp.core.differences import difference_rows

    known = stats.ttest_1samp(X, 0, axis=1)
    error = np.array([sem(x) for x in X])
    assert standard_errors.t_test_p(X.mean(1), error, 10) == pytest.approx(known.pvalue)
    assert standard_errors.t_test_p(-X.mean(1), error, 10) == pytest.approx(known.pvalue)
    edge = standard_errors.t_test_p(
        np.array([0.0, 1.0, 0.0, 1.0]), np.array([0, 0, np.nan, np.nan]), 3
    )
    assert edge[:2].tolist() == [1.0, 0.0]
    assert np.isnan(edge[2:]).all()
    assert float(standard_errors.t_test_p(1.0, 1.0, 0)) == pytest.approx(0.5)  # Cauchy
    rows = difference_rows(
        [{"layer": i, "first": 0.0, "second": 0.0, "unit": "nats"} for i in range(3)], X, None, {}
    )
    frame = rows.wide()
    assert frame["p"].to_numpy() == pytest.approx(known.pvalue)
    assert frame["p_bh"].to_numpy() == pytest.approx(stats.false_discovery_control(known.pvalue))
    assert frame["p_holm"].to_numpy() == pytest.approx(by_steps(known.pvalue))


@holds("effective_number", "cluster_count", "draw_weights", "numbered")
def test_clusters_are_counted_and_drawn_whole() -> None:
    error = [jackknife(lambda kept, x=x: x[kept].mean(), LABELS) for x in X]
    want = [stdlib.variance(map(float, x)) / e**2 for x, e in zip(X, error, strict=True)]
    assert clusters.effective_number(X.T, LABELS) == pytest.approx(want)
    assert clusters.effective_number(X.T) == pytest.approx([11] * 3)
    assert np.isnan(clusters.effective_number(np.ones((4, 1)), list("aabb"))).all()
    assert clusters.cluster_count(11, LABELS) == 6
    assert clusters.cluster_count(11) == 11
    which = clusters.numbered(11, LABELS)
    assert which.tolist() == [0, 0, 1, 1, 1, 2, 3, 3, 4, 4, 5]
    times = np.array([[2, 0, 1, 0, 3, 0], [1, 1, 1, 1, 1, 1]])
    drawn = [0, 0, 1, 1, 5, *[8] * 3, *[9] * 3]  # trials of the first draw
    weights = clusters.draw_weights(times, which)
    assert weights @ X[0] == pytest.approx([X[0][drawn].mean(), X[0].mean()])


@holds("predict", "null_spread", "transform", "_skew")
def test_predicted_head() -> None:
    draws = np.array([[0.0, 2.0, 4.0], [1.0, 1.5, 2.0], [3.0, 3.0, 9.0], [0.0, 1.0, 2.0]])
    means = [stdlib.mean(row) for row in draws.tolist()]
    inside = [stdlib.variance(row) for row in draws.tolist()]
    between = stdlib.variance(means) * (1 + 1 / 4)
    within = stdlib.mean(inside) * (1 - 1 / 3)
    freedom = (between + within) ** 2 / (between**2 / 3 + within**2 / (4 * 2))
    excess = stdlib.variance(inside) - 2 * stdlib.mean(inside) ** 2 / 2
    assert excess > 0
    tail = 4 + 2 * stdlib.mean(inside) ** 2 / excess
    for factor in (1, 100):
        e = clusters.predict(draws * factor)
        assert e.mean == pytest.approx(factor * stdlib.mean(means))
        assert e.sd == pytest.approx(factor * math.sqrt(between + within))
        assert e.freedom == pytest.approx(min(freedom, tail))
    # variances that differ much: the freedom is that of their mixture, a t distribution
    spreads = np.array([0.1, 0.1, 0.1, 0.1, 0.1, 9.0])
    mixed = spreads[:, None] * np.linspace(-1, 1, 40)
    inside = [stdlib.variance(row) for row in mixed.tolist()]
    excess = stdlib.variance(inside) - 2 * stdlib.mean(inside) ** 2 / 39
    mixture = 4 + 2 * stdlib.mean(inside) ** 2 / excess
    within = stdlib.mean(inside) * (1 - 1 / 40)
    assert mixture < within**2 / (within**2 / (6 * 39))
    assert clusters.predict(mixed).freedom == pytest.approx(mixture)
    # alike draws: the freedom is Satterthwaite's alone
    even = clusters.predict(np.array([[0.0, 1.0], [2.0, 3.0], [5.0, 6.0]]))
    between, within = stdlib.variance([0.5, 2.5, 5.5]) * 4 / 3, 0.5 / 2
    assert even.freedom == pytest.approx((between + within) ** 2 / (between**2 / 2 + within**2 / 3))
    single = clusters.predict(np.array([[1.0], [2.0], [4.0]]))  # one head: draws alone vary
    assert single.sd == pytest.approx(math.sqrt(stdlib.variance([1, 2, 4]) * 4 / 3))
    assert single.freedom == pytest.approx(2)
    assert clusters.null_spread(draws) == clusters.predict(draws).sd
    assert clusters.null_spread(draws[:2]) > 0
    assert math.isnan(clusters.null_spread(draws[:1]))

    values = np.array([0.1, 0.5, 0.9])
    share = clusters.transform([draws], -1.0, 3.0)(values)
    assert np.sin(share) ** 2 == pytest.approx((values + 1) / 4)
    below = clusters.transform([draws], None, 1.0)(values)
    assert np.exp(-below) == pytest.approx(1 - values)
    long = [np.exp(2 * np.random.default_rng(1).normal(size=(4, 8)))]
    assert np.exp(clusters.transform(long, 0.0, None)(values)) == pytest.approx(values)
    assert np.exp(clusters.transform([x + 2 for x in long], 2.0, None)(values + 2)) == (
        pytest.approx(values)
    )
    even = [np.random.default_rng(1).normal(9, 1, size=(4, 8))]
    assert clusters.transform(even, None, None)(values).tolist() == values.tolist()
    signed = [long[0] - 0.5]
    assert clusters.transform(signed, None, None)(values).tolist() == values.tolist()
    pooled = np.concatenate([((x - x.mean()) / x.std()).ravel() for x in (long[0], even[0])])
    skew = abs(np.mean(pooled**3))
    assert clusters._skew([long[0], even[0], np.ones((2, 2))], lambda x: x) == pytest.approx(skew)
    assert clusters._skew([-long[0]], lambda x: x) == pytest.approx(
        abs(stats.skew(long[0].ravel()))
    )


@holds("p_of_random_weights", "_p", "_tail", "_rank_p", "is_lattice")
def test_p_among_random_weights() -> None:
    rng = np.random.default_rng(3)
    draws = [rng.normal(2, 1, (5, 6)), rng.normal(7, 2, (5, 6))]
    scores = [np.array([2.5, 9.0]), np.array([1.0, 7.0])]
    found = clusters.p_of_random_weights(scores, draws, None, None)
    expected = [clusters.predict(x) for x in draws]
    z = np.concatenate(
        [((x - e.mean) / e.sd).ravel() for x, e in zip(draws, expected, strict=True)]
    )

    def fitted(distance: Any) -> tuple[float, float]:
        """The t distribution with the largest likelihood, averaged over widths for its tail."""
        best = (-math.inf, 0.0, 0.0)
        for freedom in (3, 4, 6, 8, 12, 20, 40, 1e12):
            fits = []
            for step in np.linspace(-1.2, 2.0, 33):
                width = float(np.median(distance) * math.exp(step))
                each = stats.t.logpdf(distance / width, freedom) - math.log(width)
                fits.append((each.sum(), width))
            top = max(fits)
            mean = top[0] + math.log(np.mean([math.exp(f - top[0]) for f, _ in fits]))
            best = max(best, (mean, top[1], freedom))
        return best[1:]

    tails = {1: fitted(z[z > 0]), -1: fitted(-z[z < 0])}
    for layer, e, mine in zip(scores, expected, found, strict=True):
        for score, p in zip(layer, mine, strict=True):
            distance = (score - e.mean) / e.sd
            width, freedom = tails[1 if distance > 0 else -1]
            want = 2 * stats.t.sf(abs(distance) / width, min(freedom, e.freedom))
            assert p == pytest.approx(min(1, want), rel=1e-6)
    width, freedom = clusters._tail(np.abs(z))
    assert (width, min(freedom, 1e12)) == pytest.approx(fitted(np.abs(z)))
    assert clusters._tail(np.ones(4)) is None
    assert clusters._tail(np.arange(1.0, 6.0)) is not None
    for short in ([], [x[:2] for x in draws]):
        nothing = clusters.p_of_random_weights(scores, short, None, None)
        assert all(np.isnan(p).all() for p in nothing)
    assert not np.isnan(
        clusters.p_of_random_weights(scores, [x[:3] for x in draws], None, None)[0]
    )[0]
    # scores of a lattice: at least the rank among the distances of all draws
    counts = [rng.integers(0, 4, (6, 5)).astype(float)]
    assert clusters.is_lattice(counts)
    e = clusters.predict(counts[0])
    pooled = np.abs((counts[0] - e.mean) / e.sd).ravel()
    [p] = clusters.p_of_random_weights([np.array([40.0, 3.0])], counts, None, None)
    far, near = (abs((x - e.mean) / e.sd) for x in (40.0, 3.0))
    assert p[0] == pytest.approx(1 / 31)
    assert p[1] >= (1 + (pooled >= near - 1e-9).sum()) / 31
    ranks = clusters._rank_p(np.array([40.0, 3.0]), e, (counts[0] - e.mean).ravel() / e.sd)
    assert ranks == pytest.approx(
        [(1 + (pooled >= far).sum()) / 31, (1 + (pooled >= near - 1e-9).sum()) / 31]
    )
    half = np.array([[0.0, 1.0], [2.0, 3.0], [0.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    assert not clusters.is_lattice([half])  # 2 of 10 occur again: not more than a fifth
    assert clusters.is_lattice([np.where(half == 8.0, 6.0, half)])
    still = [np.ones((4, 3))]
    [p] = clusters.p_of_random_weights([np.array([1.0, 1.0 + 1e-9, 2.0])], still, None, None)
    assert p.tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("module", [standard_errors, clusters], ids=lambda m: m.__name__)
def test_every_function_has_its_formula(module: ModuleType) -> None:
    """A new function of these modules needs an independent formula here."""
    assert not not_held(module)
