"""Bootstraps, intervals and permutation tests against scipy, scikit-learn and counts by hand."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from interp.core.intervals import (
    difference_of_shares,
    mean_intervals,
)
from interp.core.statistics import (
    RatioBootstrap,
    bootstrap_interval,
    holm,
    least_sign_flip_p,
    prediction_band,
    redraw,
    redraw_counts,
    sign_flip_p,
)


def test_draws_come_from_the_generator_one_after_the_other() -> None:
    """Drawing all at once or one by one gives the same draws, so that results repeat."""
    for draw, one in (
        (redraw, lambda rng: rng.integers(0, 7, 7)),
        (redraw_counts, lambda rng: rng.multinomial(7, np.full(7, 1 / 7))),
    ):
        rng = np.random.default_rng(5)
        want = [one(rng) for _ in range(20)]
        np.testing.assert_array_equal(draw(7, 20, np.random.default_rng(5)), want)


def test_intervals_cover_at_their_level():
    rng = np.random.default_rng(0)
    samples = rng.exponential(size=(400, 30))
    for method, low in (("percentile", 0.85), ("bca", 0.87)):
        interval = bootstrap_interval(samples, 0.95, method=method, draws=800)
        covered = ((interval[:, 0] <= 1) & (interval[:, 1] >= 1)).mean()
        assert low < covered < 0.98, (method, covered)
    again = bootstrap_interval(samples[:1], method="bca")
    np.testing.assert_array_equal(again, bootstrap_interval(samples[:1], method="bca"))
    # both tails of a skewed sample move up under BCa
    plain, corrected = (
        bootstrap_interval(samples[:50]),
        bootstrap_interval(samples[:50], method="bca"),
    )
    assert (corrected > plain).mean() > 0.9
    constant = bootstrap_interval(np.full((1, 5), 2.0), method="bca")
    np.testing.assert_array_equal(constant, [[2.0, 2.0]])


def test_one_more_draw_falls_into_the_prediction_band_as_often_as_stated():
    rng = np.random.default_rng(3)
    for n, outside in ((39, 0.05), (100, 0.05), (19, 0.1)):  # 19: the range, 2 of 20 are outside
        drawn = rng.standard_normal((4000, n + 1))
        bands = np.array([prediction_band(x) for x in drawn[:, 1:]])
        share = ((drawn[:, 0] < bands[:, 0]) | (drawn[:, 0] > bands[:, 1])).mean()
        assert share == pytest.approx(outside, abs=0.012)
    quantiles = np.quantile(drawn[:, 1:], [0.025, 0.975], axis=1)  # the middle 95 % is too narrow
    assert ((drawn[:, 0] < quantiles[0]) | (drawn[:, 0] > quantiles[1])).mean() > 0.12


def test_bca_equals_scipy():
    from scipy import stats

    x = np.random.default_rng(1).exponential(size=25)
    mine = bootstrap_interval(x[None], method="bca", draws=20_000)[0]
    theirs = stats.bootstrap((x,), np.mean, method="BCa", n_resamples=20_000, rng=2)
    np.testing.assert_allclose(mine, theirs.confidence_interval, rtol=0.02)


def test_intervals_draw_whole_sentences() -> None:
    """40 sentences all right or all wrong are 40 coin tosses, however long they are."""
    total = np.full(40, 25.0)
    found = np.where(np.arange(40) < 28, 25.0, 0.0)
    low, high = RatioBootstrap(40, draws=20_000).interval(found, total)
    want = stats.binom.ppf([0.025, 0.975], 40, 0.7) / 40
    assert (low, high) == pytest.approx(tuple(want), abs=0.026)  # one sentence


def test_intervals_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for seed in range(200):
        found = rng.binomial(8, 0.6, 60).astype(float)
        low, high = RatioBootstrap(60, draws=400, seed=seed).interval(found, np.full(60, 8.0))
        hits += low <= 0.6 <= high
    assert 182 <= hits <= 198  # 95 %, three standard errors of 200 tosses


def test_p_is_uniform_where_nothing_differs_and_small_where_it_does() -> None:
    rng = np.random.default_rng(1)
    small = 0
    for seed in range(200):
        a, b = rng.binomial(8, 0.6, (2, 60)).astype(float)
        _, p = RatioBootstrap(60, draws=400, seed=seed).gain(a, b, np.full(60, 8.0))
        small += p < 0.05
    assert 2 <= small <= 22
    a = rng.binomial(8, 0.9, 60).astype(float)
    (low, high), p = RatioBootstrap(60).gain(a, 0.5 * a, np.full(60, 8.0))
    assert low > 0.3
    assert high < 0.6
    assert p < 0.001


def test_the_permutation_test_counts_every_sign() -> None:
    x = np.array([0.4, -0.1, 0.3, 0.25, 0.05])
    every = [
        abs(sum(s * v for s, v in zip(signs, x, strict=True)))
        for signs in product([1, -1], repeat=5)
    ]
    want = np.mean([v >= abs(x.sum()) - 1e-12 for v in every])
    assert sign_flip_p(x) == pytest.approx(want)
    assert sign_flip_p(np.zeros(5)) == 1
    many = np.random.default_rng(0).normal(0.2, 1, 40)
    exact = stats.permutation_test(
        (many,),
        np.mean,
        permutation_type="samples",
        n_resamples=4000,
        rng=np.random.default_rng(1),
    )
    assert sign_flip_p(many, flips=4000) == pytest.approx(exact.pvalue, abs=0.04)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 14, 15])
def test_the_smallest_possible_p_is_that_of_differences_of_one_sign(n: int) -> None:
    """Reached by differences that no other arrangement of signs can equal, and never beaten."""
    flips = 19_999
    assert least_sign_flip_p(n) == pytest.approx(
        sign_flip_p(2.0 ** np.arange(n), flips=flips), abs=2e-4
    )
    draw = np.random.default_rng(n)
    assert min(
        sign_flip_p(draw.normal(1, 1, n), flips=199) for _ in range(20)
    ) >= least_sign_flip_p(n, 199)


def test_holm_is_the_step_down_correction() -> None:
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(holm(np.array([0.5, 0.6])), [1.0, 1.0])


def _draws(kind: str, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Any, ...]:
    """Values of a kind, their mean, and their least and largest value."""
    match kind:
        case "sparse":
            return (rng.random(shape) < 0.1).astype(float), 0.1, (0.0, 1.0)
        case "log-normal":
            return rng.lognormal(size=shape), math.exp(0.5), (None, None)
        case "near 0":
            return rng.beta(0.3, 3, shape), 1 / 11, (0.0, 1.0)
        case "near 1":
            return rng.beta(3, 0.3, shape), 10 / 11, (0.0, 1.0)
    return rng.normal(size=shape), 0.0, (None, None)


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("kind", ["sparse", "log-normal", "near 0", "near 1", "normal"])
def test_shown_intervals_hold_the_mean_of_every_kind_of_values(kind: str, clustered: bool) -> None:
    rng = np.random.default_rng(1)
    labels = [i // 2 for i in range(16)] if clustered else None
    for n in (6, 8):
        x, mean, bounds = _draws(kind, rng, (400, n))
        values = x.repeat(2, 1) if clustered else x
        found = mean_intervals(
            values, clusters=labels and labels[: 2 * n], bounds=bounds, draws=400
        )
        low, high = found.ends.T
        shown = ~np.isnan(low)
        assert shown.mean() > (0.4 if kind == "sparse" else 0.95)
        inside = ((low <= mean) & (mean <= high))[shown]
        # three standard errors of the share of 400 draws
        assert inside.mean() > 0.95 - 3 * math.sqrt(0.95 * 0.05 / shown.sum())
        assert [not why for why in found.why_not] == shown.tolist()


def test_an_interval_that_cannot_reach_its_level_is_a_reason() -> None:
    few = mean_intervals(np.array([[1.0, 2.0, 4.0, 3.0, 2.5]]))
    assert np.isnan(few.ends).all()
    assert few.why_not == ("too few: 5 prompts of at least 6",)
    ten = np.zeros((3, 10))
    ten[1, 3], ten[2, :6] = 1.0, np.arange(6)
    unbounded = mean_intervals(ten)
    assert unbounded.why_not[0] == "too few: all 10 prompts have the same value"
    assert unbounded.why_not[1] == "too few: 1 of 10 prompts differ from the others"
    assert unbounded.why_not[2] == ""
    bounded = mean_intervals(ten[:2], bounds=(0.0, 1.0))
    assert np.isnan(bounded.ends[0]).all()
    # 1 of 10: the exact upper 95 % limit of the share, and no value below 0
    assert np.allclose(bounded.ends[1], (0.0, 0.394163))
    signed = mean_intervals(ten[:2], bounds=(-1.0, 1.0))
    assert np.allclose(signed.ends[1], (-0.394163, 0.394163))


def test_the_interval_of_a_difference_of_shares_holds_it_as_often_as_it_says() -> None:
    """Over all outcomes of 20 and 25 trials, each with its probability."""
    hits, others = (x.ravel() for x in np.indices((21, 26)))
    sem, (low, high) = (x.T for x in difference_of_shares(hits, 20, others, 25))
    assert sem.min() > 0.04
    for one, other in ((0.97, 0.03), (0.9, 0.1), (0.5, 0.2), (0.03, 0.03)):
        chance = stats.binom.pmf(hits, 20, one) * stats.binom.pmf(others, 25, other)
        assert chance[(low <= one - other) & (one - other <= high)].sum() > 0.949
    score = hits / 20 - others / 25
    assert ((low <= score) & (score <= high)).all()
    share = 11 / 22, 6 / 27
    by_hand = np.sqrt(share[0] * (1 - share[0]) / 22 + share[1] * (1 - share[1]) / 27)
    found, ends = difference_of_shares(np.array(10), 20, np.array(5), 25, 0.9)
    assert found == pytest.approx(by_hand)
    want = share[0] - share[1] + np.array([-1, 1]) * stats.norm.ppf(0.95) * by_hand
    np.testing.assert_allclose(ends, want)
