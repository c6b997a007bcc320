"""Intervals of means, sums and shares by independent formulas."""

from __future__ import annotations

import math
import statistics as stdlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from core.formulas import LABELS, RNG, X, holds, not_held
from scipy import stats

from interp.core import intervals, long_rows
from interp.core.errors import OptionError


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
    for number, bounds, known in (
        (4, (0.0, 1.0), True),
        (4, (None, None), False),
        (5, (0.0, None), False),
        (5, (0.0, 1.0), True),
    ):
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


@pytest.mark.parametrize("module", [intervals], ids=lambda m: m.__name__)
def test_every_function_has_its_formula(module: ModuleType) -> None:
    """A new function of these modules needs an independent formula here."""
    assert not not_held(module)
