"""Every statistic of the core by an independent formula, so that no sign or factor can change.

Each test names the functions it holds. The last one asks for a test of every function of the five
modules; `tests/house/test_statistics.py` keeps such formulas out of all other files.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import statistics as stdlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from interp.core import clusters, intervals, long_rows, rank_statistics, standard_errors
from interp.core import statistics as core
from interp.core.errors import OptionError
from interp.core.prompt_means import paired_p, prompt_means

HELD: set[str] = set()
"""Functions that a test of this file holds."""
MODULES = (core, standard_errors, intervals, clusters, rank_statistics)
RNG = np.random.default_rng(7)
X = RNG.normal(1, 2, (3, 11)).round(3)
"""Three scores on eleven prompts."""
LABELS = list("aabbbcddeef")
"""Clusters of the prompts, of unequal sizes."""
SIZES = {label: LABELS.count(label) for label in LABELS}


def holds(*names: str) -> Callable[[Any], Any]:
    """Say which functions a test holds."""
    HELD.update(names)
    return lambda test: test


def sem(x: Any) -> float:
    """Standard error of a mean, from the standard library."""
    return stdlib.stdev(map(float, x)) / math.sqrt(len(x))


def jackknife(estimate: Callable[[list[int]], float], groups: list[Any]) -> float:
    """Standard error of an estimate from trials, leaving out one group at a time."""
    names = list(dict.fromkeys(groups))
    left = [estimate([i for i, g in enumerate(groups) if g != name]) for name in names]
    middle = sum(left) / len(left)
    return math.sqrt((len(left) - 1) / len(left) * sum((x - middle) ** 2 for x in left))


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


def by_steps(p: Any) -> list[float]:
    """Holm's correction as it is defined: the largest step so far, at most 1."""
    order = np.argsort(p)
    steps = [min(1.0, (len(p) - k) * p[i]) for k, i in enumerate(order)]
    out = [0.0] * len(p)
    for k, i in enumerate(order):
        out[i] = max(steps[: k + 1])
    return out


@holds("holm", "benjamini_hochberg")
def test_corrections() -> None:
    p = RNG.uniform(size=12) ** 3
    assert core.holm(p) == pytest.approx(by_steps(p))
    groups = list("ab" * 6)
    want = np.empty(12)
    want[::2], want[1::2] = by_steps(p[::2]), by_steps(p[1::2])
    assert core.holm(p, groups) == pytest.approx(want)
    holes = np.insert(p, 3, np.nan)
    found = core.holm(holes)
    assert np.isnan(found[3])
    assert np.delete(found, 3) == pytest.approx(by_steps(p))
    found = core.benjamini_hochberg(holes)
    assert np.isnan(found[3])
    assert np.delete(found, 3) == pytest.approx(stats.false_discovery_control(p))


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


@holds("redraw", "redraw_columns", "redraw_counts", "counts_of", "tails_of", "percentile_interval")
def test_draws_and_their_quantiles() -> None:
    rng = np.random.default_rng
    drawn = core.redraw(5, 30, rng(1))
    assert drawn.tolist() == rng(1).integers(0, 5, (30, 5)).tolist()
    assert core.redraw_columns(5, 30, rng(1)).tolist() == rng(1).integers(0, 5, (5, 30)).tolist()
    times = core.counts_of(drawn)
    assert times.tolist() == [[row.tolist().count(i) for i in range(5)] for row in drawn]
    counts = core.redraw_counts(5, 4000, rng(2))
    assert (counts.sum(1) == 5).all()
    assert counts.mean(0) == pytest.approx([1] * 5, abs=0.06)
    assert counts.var(0) == pytest.approx([1 - 1 / 5] * 5, abs=0.08)
    assert core.tails_of(0.9) == pytest.approx((0.05, 0.95))
    assert pytest.approx(core.tails_of(0.95)) == core.TAILS
    ordered = np.arange(101.0)
    assert core.percentile_interval(ordered).tolist() == pytest.approx([2.5, 97.5])
    both = core.percentile_interval(np.stack([ordered, -ordered], 1), (0.1, 0.8), axis=0)
    assert both.tolist() == [[10, -90], [80, -20]]


@holds("widened", "widened_tails", "finite_interval", "finite_mean", "interval_between")
@holds("prediction_band")
def test_intervals_of_draws() -> None:
    reach = math.sqrt(6 / 5) * stats.t.ppf([0.025, 0.5, 0.975], 5)
    assert core.widened([0.025, 0.5, 0.975], 6) == pytest.approx(stats.norm.cdf(reach))
    assert core.widened([0.025], 1).tolist() == [0.025]
    assert core.widened_tails(0.95, 6) == pytest.approx(stats.norm.cdf(reach[[0, 2]]))
    drawn = np.append(RNG.normal(size=200), [np.nan, np.inf])
    want = np.quantile(drawn[:200], stats.norm.cdf(reach[[0, 2]]))
    assert core.finite_interval(drawn, 6) == pytest.approx(want)
    assert core.finite_interval(drawn) == pytest.approx(np.quantile(drawn[:200], [0.025, 0.975]))
    assert np.isnan(core.finite_interval(np.array([np.nan]))).all()
    holes = np.array([[1.0, np.nan, 4.0], [np.nan, np.inf, np.nan]])
    assert core.finite_mean(holes)[0] == 2.5
    assert np.isnan(core.finite_mean(holes)[1])
    assert core.finite_mean(holes, 0)[[0, 2]].tolist() == [1.0, 4.0]
    known = (0.025, 0.5, 0.975)
    rows = np.array([[1.0, 2.0, 5.0], [0.0, 1.0, 2.0]])
    assert core.interval_between(rows, known, 0.95) == pytest.approx(rows[:, [0, 2]])
    assert core.interval_between(rows[:0], known, 0.95).shape == (0, 2)
    share = stats.norm.ppf(0.9) / stats.norm.ppf(0.975)
    assert core.interval_between(rows, known, 0.8)[0] == pytest.approx([2 - share, 2 + 3 * share])
    assert core.interval_between(rows, known, 0.999)[0] == pytest.approx([1, 5])
    for level in (0, 1):
        with pytest.raises(OptionError, match="between 0 and 1"):
            core.interval_between(rows, known, level)
    # 0.025 * 80 = 2 and 0.975 * 80 = 78: the second of 79 draws from either end
    assert core.prediction_band(np.arange(1.0, 80.0)) == pytest.approx((2, 78))
    assert core.prediction_band(np.arange(1.0, 80.0), 0.9) == pytest.approx((4, 76))
    assert core.prediction_band(np.arange(10.0)) == (0, 9)


@holds("bootstrap_interval", "bootstrap_bounds", "require_two")
def test_bootstrap_intervals_one_draw_after_the_other() -> None:
    for labels in (None, LABELS):
        groups = labels or list(range(11))
        names = list(dict.fromkeys(groups))
        trials = [[i for i, g in enumerate(groups) if g == name] for name in names]
        drawn = np.random.default_rng(3).integers(0, len(names), (500, len(names)))
        for x, mine, bca in zip(
            X,
            core.bootstrap_interval(X, 0.9, draws=500, seed=3, clusters=labels),
            core.bootstrap_interval(X, 0.9, method="bca", draws=500, seed=3, clusters=labels),
            strict=True,
        ):
            means = np.array([x[[i for d in row for i in trials[d]]].mean() for row in drawn])
            assert mine == pytest.approx(np.quantile(means, [0.05, 0.95]))
            # Efron and Tibshirani 1993, "An Introduction to the Bootstrap", 14.10 to 14.15
            apart = (means - x.mean()).round(9)  # a draw of each cluster once is a tie
            below = (apart < 0).mean() + (apart == 0).mean() / 2
            z = stats.norm.ppf(below)
            left = np.array([np.delete(x, t).mean() for t in trials])
            off = left.mean() - left
            a = (off**3).sum() / (6 * (off**2).sum() ** 1.5)
            ends = [z + stats.norm.ppf(p) for p in (0.05, 0.95)]
            share = [stats.norm.cdf(z + e / (1 - a * e)) for e in ends]
            assert bca == pytest.approx(np.quantile(means, share))
    assert core.bootstrap_bounds(X, 0.8) == pytest.approx(core.bootstrap_interval(X, 0.8))
    assert np.isnan(core.bootstrap_bounds(X[:, :2], clusters=["a", "a"])).all()
    assert core.bootstrap_bounds(X[:0]).shape == (0, 2)
    # all draws on one side of the score: the bias is that of half a draw
    flat = core.bootstrap_interval(np.array([[0.0, 0.0, 0.0]]), method="bca", draws=10)
    assert flat.tolist() == [[0, 0]]
    for wrong in ({"level": 0.0}, {"level": 1.0}, {"draws": 1}, {"method": "t"}):
        with pytest.raises(OptionError):
            core.bootstrap_interval(X, **wrong)
    assert core.bootstrap_interval(X, draws=2).shape == (3, 2)
    with pytest.raises(OptionError, match="at least two of them"):
        core.bootstrap_interval(X[:, :1])
    with pytest.raises(OptionError, match="all 11 prompts are one cluster"):
        core.bootstrap_interval(X, clusters=["a"] * 11)


@holds("ratio_intervals", "RatioBootstrap", "ratios", "quantiles", "interval", "gain")
def test_ratios_of_means() -> None:
    whole = X[2] ** 2 + 1
    ratio = X[:2].mean(1) / whole.mean()
    for labels in (None, LABELS):
        groups = labels or list(range(11))
        for level in (0.95, 0.8):
            found = core.ratio_intervals(X[:2], whole, level=level, clusters=labels)
            for x, r, ends in zip(X[:2], ratio, found, strict=True):
                rest = x - r * whole
                error = jackknife(lambda kept, y=rest: y[kept].mean(), groups) / whole.mean()
                half = stats.t.ppf((1 + level) / 2, len(set(groups)) - 1) * error
                assert ends == pytest.approx([r - half, r + half])
    assert core.ratio_intervals(X[:2], -whole)[0] == pytest.approx(
        -core.ratio_intervals(X[:2], whole)[0][::-1]
    )
    draws = core.RatioBootstrap(11, draws=300, seed=4)
    times = np.random.default_rng(4).multinomial(11, [1 / 11] * 11, size=300)
    want = [(t * X[0]).sum() / (t * whole).sum() for t in times]
    assert draws.ratios(X[0], whole) == pytest.approx(want)
    assert np.isnan(draws.ratios(X[0], np.zeros(11))).all()
    reach = stats.norm.cdf(math.sqrt(11 / 10) * stats.t.ppf([0.025, 0.1, 0.975], 10))
    low, up, high = np.quantile(want, reach)
    assert draws.interval(X[0], whole) == pytest.approx((low, high))
    assert draws.quantiles(X[0], whole, (0.1, 0.975)) == pytest.approx((up, high))
    ends, p = draws.gain(X[0], X[1], whole)
    apart = np.array([(t * (X[0] - X[1])).sum() / (t * whole).sum() for t in times])
    assert ends == pytest.approx(tuple(np.quantile(apart, reach[[0, 2]])))
    tail = 1 + min((apart <= 0).sum(), (apart >= 0).sum())
    assert p == pytest.approx(min(1, max(2.0**-10, 2 * tail / 301)))
    assert draws.gain(whole, 0 * whole, whole)[1] == pytest.approx(2 / 301)
    few = np.where(np.arange(11) < 3, 1.0, 0.0)  # three units differ
    assert draws.gain(few, 0 * few, whole)[1] == 0.25
    assert draws.gain(whole, whole, whole)[1] == 1.0
    assert draws.gain(whole, whole, 0 * whole)[1] == 1.0


@holds("sign_flip_p", "sign_flip_ps", "least_sign_flip_p", "paired_p")
def test_sign_flips() -> None:
    x = X[:, :7].copy()
    x[2, [1, 5]] = np.nan
    want = []
    for row in (row[~np.isnan(row)] for row in x):
        sums = [abs(np.dot(s, row)) for s in itertools.product((1, -1), repeat=len(row))]
        want.append(np.mean([s >= abs(row.sum()) - 1e-9 for s in sums]))
    assert core.sign_flip_ps(x) == pytest.approx(want)
    many = RNG.normal(0.4, 1, (1, 15))
    signs = 1 - 2 * np.random.default_rng(2).integers(0, 2, size=(99, 15))
    beyond = sum(abs(s @ many[0]) >= abs(many.sum()) for s in signs)
    assert core.sign_flip_ps(many, flips=99, seed=2) == pytest.approx([(beyond + 1) / 100])
    assert core.sign_flip_p(many[0], flips=99, seed=2) == pytest.approx((beyond + 1) / 100)
    assert core.sign_flip_p(np.zeros(15)) == 1
    numbers = [core.least_sign_flip_p(n, 99) for n in (0, 1, 2, 5, 14, 15)]
    assert numbers == [1, 1, 1 / 2, 1 / 16, 2 / 2**14, 1 / 100]
    assert core.sign_flip_p(np.arange(1.0, 6.0)) == core.least_sign_flip_p(5)

    apart = np.array([1.0, 2.0, np.nan, -1.0, 4.0, 3.0])
    assert paired_p(apart, list("aabbcc")) == core.sign_flip_p(np.array([3.0, -1.0, 7.0]))
    assert paired_p(apart) == core.sign_flip_p(np.array([1.0, 2.0, -1.0, 4.0, 3.0]))
    nulls = X - np.abs(X)[:, ::-1]
    rows = prompt_means([{"metric": "a"}] * 3, (), X, nulls).wide()
    p = [core.sign_flip_p(d) for d in np.abs(X)[:, ::-1]]
    assert rows["p"].to_numpy() == pytest.approx(p)
    assert rows["p_holm"].to_numpy() == pytest.approx(by_steps(np.array(p)))
    assert rows["null"].to_numpy() == pytest.approx(nulls.mean(1))
    assert rows["sem"].to_numpy() == pytest.approx([sem(x) for x in X])


@holds("half_width", "normal_as_t", "around", "share_interval", "fraction_interval")
@holds("difference_of_shares", "t_bounds")
def test_widths_and_shares() -> None:
    parts = [(0.5, 4.0), (0.3, 9.0)]
    df = (0.25 + 0.09) ** 2 / (0.25**2 / 4 + 0.09**2 / 9)
    half = stats.t.ppf(0.95, df) * math.sqrt(0.34)
    assert float(intervals.half_width(parts, 0.9)) == pytest.approx(half)
    assert float(intervals.half_width([(0.5, math.inf)])) == pytest.approx(1.959964 * 0.5)
    assert float(intervals.half_width([(0.0, 3.0)])) == 0
    many = intervals.half_width([(np.array([0.5, np.nan, 1.0]), 4.0)])
    assert many[[0, 2]] == pytest.approx(stats.t.ppf(0.975, 4) * np.array([0.5, 1.0]))
    assert np.isnan(many[1])
    assert np.isnan(intervals.half_width([(0.5, 4.0), (0.1, 0.0)]))
    score = np.array([1.0, -2.0])
    assert intervals.around(score, parts, 0.9) == pytest.approx(
        np.stack([score - half, score + half], 1)
    )
    assert stats.t.sf(intervals.normal_as_t(2.5, 7), 6) == pytest.approx(stats.norm.sf(2.5))
    for hits, n, level in ((3, 8, 0.95), (0, 5, 0.9), (20, 20, 0.99)):
        z, p = stats.norm.ppf((1 + level) / 2), hits / n  # Wilson 1927
        middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
        reach = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
        want = middle - reach, middle + reach
        assert intervals.share_interval(hits, n, level) == pytest.approx(want, abs=1e-12)
        assert intervals.fraction_interval(p, n, level) == pytest.approx(want, abs=1e-12)
    assert intervals.share_interval(0, 0) == intervals.fraction_interval(0.3, 0) == (0, 1)
    error, ends = intervals.difference_of_shares(np.array([10, 0]), 20, np.array([5, 9]), 9, 0.9)
    for i, (a, b) in enumerate(((11 / 22, 6 / 11), (1 / 22, 10 / 11))):
        by_hand = math.sqrt(a * (1 - a) / 22 + b * (1 - b) / 11)
        assert error[i] == pytest.approx(by_hand)
        reach = stats.norm.ppf(0.95) * by_hand
        score = (10 / 20 - 5 / 9, -1.0)[i]
        low, high = max(a - b - reach, -1), min(a - b + reach, 1)
        assert ends[i] == pytest.approx([min(low, score), max(high, score)])
    for level in (0, 1):
        with pytest.raises(OptionError):
            intervals.half_width(parts, level)

    import pandas as pd

    frame = pd.DataFrame({"score": [1.0, 2.0, 3.0], "sem": [0.5, np.nan, 0.1], "n": [5, 5, 1]})
    ends = long_rows.t_bounds(frame, 0.9)
    reach = stats.t.ppf(0.95, 4) * 0.5
    assert ends[0] == pytest.approx([1 - reach, 1 + reach])
    assert np.isnan(ends[1:]).all()
    ends = long_rows.t_bounds(frame.assign(clusters=[3, 3, 2]), 0.9)
    reach = stats.t.ppf(0.95, 2) * 0.5, stats.t.ppf(0.95, 1) * 0.1
    assert ends[[0, 2], 0] == pytest.approx([1 - reach[0], 3 - reach[1]])
    assert ends[[0, 2], 1] == pytest.approx([1 + reach[0], 3 + reach[1]])


def bootstrap_t(x: Any, groups: list[Any], level: float, draws: int, seed: int) -> list[float]:
    """The t interval joined with the bootstrap-t interval over clusters, by loops."""
    names = list(dict.fromkeys(groups))
    at = [[i for i, g in enumerate(groups) if g == name] for name in names]
    n, mean = len(names), x.mean()

    def error(drawn: list[int], around: float) -> float:
        """Linearised error of a ratio mean over the drawn clusters."""
        number = sum(len(at[c]) for c in drawn)
        gaps = [sum(x[i] - around for i in at[c]) for c in drawn]
        return math.sqrt(n / (n - 1) * sum(g**2 for g in gaps)) / number

    whole = error(list(range(n)), mean)
    half = stats.t.ppf((1 + level) / 2, n - 1) * whole
    ratios = []
    for times in np.random.default_rng(seed).multinomial(n, [1 / n] * n, size=draws):
        drawn = [c for c in range(n) for _ in range(times[c])]
        middle = np.mean([x[i] for c in drawn for i in at[c]])
        ratios.append((middle - mean) / (error(drawn, middle) or math.inf))
    ratios.sort()
    tail = (1 - level) / 2 * min(1.0, n / 16)
    low, high = ratios[math.floor(tail * (draws - 1))], ratios[math.ceil((1 - tail) * (draws - 1))]
    return [min(mean - half, mean - high * whole), max(mean + half, mean - low * whole)]


@holds("mean_intervals", "columns", "in_frame", "_continuous", "_linear_error", "_joined")
@holds("site_intervals")
def test_intervals_of_means_one_draw_after_the_other() -> None:
    for labels in (None, LABELS):
        groups = labels or list(range(11))
        found = intervals.mean_intervals(X, 0.9, clusters=labels, bounds=(-9, 9), draws=200, seed=5)
        for x, ends in zip(X, found.ends, strict=True):
            assert ends == pytest.approx(bootstrap_t(x, groups, 0.9, 200, 5))
    assert set(found.columns) == {"low", "high", "why_no_interval"}
    assert found.columns["low"].tolist() == found.ends[:, 0].tolist()
    assert found.columns["high"].tolist() == found.ends[:, 1].tolist()
    # bounds end an interval
    assert intervals.mean_intervals(X, 0.9, bounds=(X.mean(), None)).ends[:, 0].min() >= min(
        X.mean(), X.mean(1).min()
    )
    # independent errors are added to each distance as squares
    plain = intervals.mean_intervals(X, 0.9, bounds=(-9, 9), draws=200)
    more = intervals.mean_intervals(X, 0.9, bounds=(-9, 9), draws=200, others=[(0.4, 6.0)])
    half = stats.t.ppf(0.95, 6) * 0.4
    mean = X.mean(1)
    for side, sign in ((0, -1), (1, 1)):
        reach = np.hypot(plain.ends[:, side] - mean, half)
        assert more.ends[:, side] == pytest.approx(mean + sign * reach)
    unknown = intervals.mean_intervals(X, bounds=(-9, 9), others=[(0.4, 0.0)])
    assert unknown.why_not == ("too few: one sample says nothing of its error",) * 3
    # a row with NaN has none, and the others keep their own errors
    holes = np.insert(X, 1, np.nan, 0)
    errors = np.array([0.4, 9.0, 0.2, 0.1])
    found = intervals.mean_intervals(holes, bounds=(-9, 9), others=[(errors, 6.0)])
    want = intervals.mean_intervals(X, bounds=(-9, 9), others=[(errors[[0, 2, 3]], 6.0)])
    assert np.delete(found.ends, 1, 0) == pytest.approx(want.ends)
    assert found.why_not == ("", intervals.NO_SCORE, "", "")
    values = np.where(np.arange(11)[:, None] == 3, np.nan, X.T)
    sites = {"a": X.T, "b": values, "c": X.T[:, :2]}
    found = intervals.site_intervals(sites, LABELS, (-9, 9), 0.9)
    assert list(map(len, (found[k].ends for k in "abc"))) == [3, 3, 2]
    kept = [i for i in range(11) if i != 3]
    one = intervals.mean_intervals(
        X[:, kept], 0.9, clusters=[LABELS[i] for i in kept], bounds=(-9, 9)
    )
    assert found["b"].ends == pytest.approx(one.ends)
    whole = intervals.mean_intervals(X, 0.9, clusters=LABELS, bounds=(-9, 9))
    assert found["a"].ends == pytest.approx(whole.ends)
    assert found["c"].ends == pytest.approx(whole.ends[:2])
    with pytest.raises(OptionError):
        intervals.mean_intervals(X, 1.0)


@holds("_shared_value", "_largest_share", "_log_normal", "_skewness")
def test_intervals_of_sparse_and_of_skewed_values() -> None:
    # a few hits: Clopper and Pearson's upper limit of the share times the distance to the bounds
    hits = np.zeros((1, 12))
    hits[0, :2] = 1
    upper = stats.binomtest(2, 12).proportion_ci(0.9, "exact").high  # 5 % above: one-sided 95 %
    sparse = intervals.mean_intervals(hits, 0.95, bounds=(-0.5, 1.0))
    assert sparse.ends[0] == pytest.approx([-0.5 * upper, upper])
    for number, bounds, known in ((4, (0.0, 1.0), True), (4, (None, None), False),
                                  (5, (0.0, None), False), (5, (0.0, 1.0), True)):  # fmt: skip
        x = np.where(np.arange(21) < number, RNG.uniform(0.2, 0.9, 21), 0.0)[None]
        found = intervals.mean_intervals(x, bounds=bounds)
        assert (found.why_not[0] == "") == known
        if known and number < 5:
            upper = stats.beta.ppf(0.95, number + 1, 21 - number)
            assert found.ends[0] == pytest.approx([0, upper])
    # positive values less skewed on a logarithmic scale: the generalised log-normal interval too
    skewed = np.random.default_rng(0).lognormal(0, 1, 20)
    for sign in (1, -1):
        found = intervals.mean_intervals(sign * skewed[None], 0.9, draws=200, seed=5).ends[0]
        rng = np.random.default_rng(5)
        rng.multinomial(20, [1 / 20] * 20, size=200)  # the draws of the bootstrap come first
        z, u = rng.normal(size=(2000, 1)), rng.chisquare(19, size=(2000, 1)) / 19
        log, spread = np.log(skewed).mean(), stdlib.stdev(np.log(skewed).tolist())
        drawn = log - z * spread / np.sqrt(20 * u) + spread**2 / (2 * u)
        generalised = np.exp(np.quantile(drawn, [0.05, 0.95]))
        low, high = bootstrap_t(skewed, list(range(20)), 0.9, 200, 5)
        if sign < 0:
            low, high = bootstrap_t(-skewed, list(range(20)), 0.9, 200, 5)
            generalised = -generalised[::-1]
        assert found == pytest.approx([min(low, generalised[0]), max(high, generalised[1])])
    assert intervals._skewness(np.array([[0.0], [0.0], [3.0]])) == pytest.approx([2**-0.5])
    assert intervals._skewness(np.ones((3, 1))).tolist() == [0.0]


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


@holds("ranks", "spearman", "paired_spearman", "kendall", "_normalised", "top_k", "overlap_p")
@holds("jaccard_by_k", "_places", "auroc", "auroc_interval")
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
    one, other = RNG.normal(size=(2, 9))
    order = [np.argsort(-np.abs(x)).tolist() for x in (one, other)]
    want = [len({*order[0][:k]} & {*order[1][:k]}) / len({*order[0][:k]} | {*order[1][:k]})
            for k in range(1, 10)]  # fmt: skip
    assert rank_statistics.jaccard_by_k(one, other) == pytest.approx(want)
    ties = rank_statistics.jaccard_by_k(np.array([1.0, -1.0, 0.0]), np.array([0.0, 1.0, 1.0]))
    assert ties == pytest.approx([0, 1 / 3, 1])  # {0} and {1}; {0, 1} and {1, 2}
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


def functions_of(module: ModuleType) -> set[str]:
    """Names of the functions and methods that a module defines, without those that construct."""
    tree = ast.parse(inspect.getsource(module))
    within = [tree, *(x for x in tree.body if isinstance(x, ast.ClassDef))]
    return {x.name for part in within for x in part.body if isinstance(x, ast.FunctionDef)} - {
        "__init__", "of_rows",
    }  # fmt: skip


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_every_function_has_its_formula(module: ModuleType) -> None:
    """A new function of these modules needs an independent formula here."""
    assert not functions_of(module) - HELD
