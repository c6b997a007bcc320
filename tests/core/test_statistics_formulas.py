"""Draws, bootstraps, sign flips and corrections by independent formulas."""

from __future__ import annotations

import itertools
import math
from types import ModuleType

import numpy as np
import pytest
from core.formulas import LABELS, RNG, X, by_steps, holds, jackknife, not_held, sem
from scipy import stats

from interp.core import statistics as core
from interp.core.errors import OptionError
from interp.core.prompt_means import paired_p, prompt_means


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


@holds(
    "widened",
    "_widened",
    "widened_quantiles",
    "widened_tails",
    "finite_interval",
    "finite_mean",
    "interval_between",
)
@holds("prediction_band")
def test_intervals_of_draws() -> None:
    reach = math.sqrt(6 / 5) * stats.t.ppf([0.025, 0.5, 0.975], 5)
    assert core.widened([0.025, 0.5, 0.975], 6) == pytest.approx(stats.norm.cdf(reach))
    assert core.widened([0.025], 1).tolist() == [0.025]
    drawn = np.append(np.random.default_rng(0).normal(size=99), [np.nan, np.inf])
    ends = np.quantile(drawn[:99], stats.norm.cdf(reach))
    assert core.widened_quantiles(drawn, [0.025, 0.5, 0.975], 6) == pytest.approx(ends)
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


@holds("mean_above_p")
def test_bets_on_a_mean() -> None:
    x, least = RNG.random(9).round(3), 0.3
    money = [math.prod(1 + stake / least * (one - least) for one in x) for stake in (0.2, 0.5, 0.8)]
    assert core.mean_above_p(x, least) == pytest.approx(min(1, 3 / sum(money)))
    assert core.mean_above_p(np.array([1.0, 1.0]), 0.5, (0.99,)) == pytest.approx(1 / 1.99**2)
    assert core.mean_above_p(np.full(5, least), least) == 1
    assert core.mean_above_p(np.zeros(5), least) == 1


@holds("sign_flip_p", "sign_flip_ps", "_signs", "least_sign_flip_p", "paired_p")
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


@pytest.mark.parametrize("module", [core], ids=lambda m: m.__name__)
def test_every_function_has_its_formula(module: ModuleType) -> None:
    """A new function of these modules needs an independent formula here."""
    assert not not_held(module)
