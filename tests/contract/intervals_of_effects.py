"""Formulas of the intervals of interventions and their comparison."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from contract.interval_oracles import LABELS, RNG, WHOLE, X, oracle, t_interval
from scipy import stats

from interp.cache import methods
from interp.causal import importance, pairs
from interp.causal.checkpoint import certificate
from interp.causal.comparison import draws as comparison
from interp.causal.gating import result as gating
from interp.causal.pruning import folds
from interp.causal.pruning.result import PruningCurve
from interp.causal.shapley_values import permutations, solution
from interp.core.intervals import mean_intervals
from interp.core.statistics import bootstrap_interval
from interp.dictionaries import explained_attention


@oracle("causal/comparison/draws.py:agreement_interval")
def agreement() -> None:
    def measure(scores: Any) -> Any:
        return scores @ scores.T

    def ranking(x: Any, *, magnitude: bool = False, of: str = "one") -> Any:
        about = {"task_hash": of}
        return SimpleNamespace(per_prompt=x, clusters=LABELS, about=about, magnitude=magnitude)

    scores = np.stack([X.mean(1), np.abs(X[::-1].mean(1))])
    two = [ranking(X), ranking(X[::-1], magnitude=True)]
    found = comparison.agreement_interval(two, scores, measure, 80, 3, 0.9)
    times = np.random.default_rng(3).multinomial(5, [0.2] * 5, size=80)
    which = np.array([list("abcde").index(x) for x in LABELS])
    drawn = []
    for row in times:
        weight = row[which] / row[which].sum()
        drawn.append((X @ weight) @ np.abs(X[::-1] @ weight))
    assert found[0, 1] == pytest.approx(np.quantile(drawn, [0.05, 0.95]))
    assert (found[1, 0] == found[0, 1]).all()
    assert np.isnan(found[[0, 1], [0, 1]]).all()
    for nothing in ([ranking(None)] * 2, two):
        n_boot = 80 if nothing is not two else 1
        assert np.isnan(comparison.agreement_interval(nothing, scores, measure, n_boot, 3)).all()
    flat = np.stack([scores[0], np.ones(3)])  # a constant ranking agrees with none
    assert np.isnan(comparison.agreement_interval(two, flat, measure, 80, 3)).all()


@oracle("causal/checkpoint/certificate.py:mean_and_interval")
@oracle("causal/gating/result.py:mean_with_interval", "causal/importance.py:mean_columns")
@oracle("dictionaries/explained_attention.py:_interval")
def t_intervals_of_means() -> None:
    for labels in (None, LABELS):
        want = t_interval(X[0], labels)
        found = certificate.mean_and_interval(X[0], labels)
        assert (found["low"], found["high"]) == pytest.approx(want)
        assert (found["value"], found["n"]) == (pytest.approx(X[0].mean()), 9)
        text = gating.mean_with_interval(X[0], labels)
        assert text == f"{X[0].mean():.4g} [{want[0]:.4g}, {want[1]:.4g}]"
        columns = importance.mean_columns(X, labels)
        ends = [t_interval(x, labels) for x in X]
        assert columns["low"] == pytest.approx([low for low, _ in ends])
        assert columns["high"] == pytest.approx([high for _, high in ends])
        holes = np.append(X[0], np.nan)
        mean, sem, low, high, n = explained_attention._interval(holes, labels and (*labels, "f"))
        assert (mean, low, high, n) == pytest.approx((X[0].mean(), *want, 9))
        assert sem == pytest.approx(columns["sem"][0])
    nothing = explained_attention._interval(np.array([1.0, np.nan]), None)
    assert (nothing[0], nothing[4]) == (1.0, 1)
    assert np.isnan(nothing[1:4]).all()


@oracle("causal/importance.py:Importance.bounds", "causal/importance.py:Importance._intervals")
@oracle("causal/pairs.py:interaction_rows", "causal/pairs.py:bounds_of_interactions")
def intervals_with_an_error_of_samples() -> None:
    sampling = (np.array([0.3, 0.2, 0.1]), 4.0)
    self: Any = SimpleNamespace(
        per_prompt=X, clusters=LABELS, sampling_sem=sampling[0], sampling_df=sampling[1]
    )
    many = np.tile(X, 2)  # enough clusters, and labels of their own
    names = (*LABELS, *(f"{x}2" for x in LABELS))
    self.per_prompt, self.clusters = many, names
    want = mean_intervals(many, 0.9, clusters=names, others=(sampling,)).ends
    at_95 = mean_intervals(many, clusters=names, others=(sampling,))
    assert not np.isnan(want).any()
    assert pairs.bounds_of_interactions(self, 0.9) == pytest.approx(want)
    made: Any = {"table": None, "players": None, "of": "removal", "higher_is_better": True}
    scores = importance.Importance(
        per_prompt=many, clusters=names, sampling_sem=sampling[0], sampling_df=4.0, **made
    )
    assert scores.bounds(0.9) == pytest.approx(want)
    assert scores.bounds() == pytest.approx(at_95.ends)
    assert scores._intervals().ends == pytest.approx(at_95.ends)
    for level in (0.95, 0.8):
        drawn = bootstrap_interval(many, level, method="bca", draws=90, seed=2, clusters=names)
        found = scores.bounds(level, method="bca", n_boot=90, seed=2)
        assert found == pytest.approx(drawn)
    drawn = bootstrap_interval(many, 0.95, clusters=names)
    assert scores.bounds(method="percentile") == pytest.approx(drawn)
    rows = pairs.interaction_rows(
        "shapley",
        "sampled",
        ("a", "b", "c"),
        np.array([[0, 1], [0, 2], [1, 2]]),
        many,
        sampling,
        "nats",
        {},
        names,
    )
    frame = rows.wide()
    assert frame[["low", "high"]].to_numpy() == pytest.approx(at_95.ends)
    ends = np.array([t_interval(x, names) for x in many])
    sem = (ends[:, 1] - ends[:, 0]) / 2 / stats.t.ppf(0.975, 9)
    assert frame["sem"].to_numpy() == pytest.approx(np.hypot(sem, sampling[0]))
    assert frame["first"].tolist() == ["a", "a", "b"]
    assert frame["second"].tolist() == ["b", "c", "c"]
    assert (frame["n"] == 18).all()
    assert (frame["clusters"] == 10).all()


@oracle("causal/pruning/folds.py:loop_interval")
def loops() -> None:
    given = [1.0, 2.0, 4.0, 4.5, 3.0]
    for n, df in ((12, 4), (4, 3)):  # the fewer of loops and clusters
        half = stats.t.ppf(0.975, df) * np.std(given, ddof=1) * math.sqrt(n / (n - 1))
        assert folds.loop_interval(7.0, given, n) == pytest.approx((7 - half, 7 + half))
    assert np.isnan(folds.loop_interval(7.0, given, 1)).all()
    assert np.isnan(folds.loop_interval(7.0, given[:1], 9)).all()


@oracle("causal/gating/result.py:LearnedGates.__repr__")
def printed_gates() -> None:
    held = {"all": WHOLE[None], "kept": X[:2], "none": X[2:], "random": RNG.normal(size=(60, 9))}
    self: Any = SimpleNamespace(
        gate=np.ones((2, 3)),
        settled=(True, False),
        labels=("x", "y", "z"),
        kept=("x",),
        cost=np.array([1.0, 2.0, 5.0]),
        cost_unit="weights",
        method="m",
        upper=None,
        unit="nats",
        held_out=held,
        clusters=LABELS,
    )
    text = gating.LearnedGates.__repr__(self)
    low, high = t_interval(X[:2].mean(0), LABELS)
    assert f"kept {X[:2].mean():.4g} [{low:.4g}, {high:.4g}]" in text
    drawn = held["random"].mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975], method="weibull")
    assert f"{drawn.mean():.4g}, 95 % band {low:.4g} to {high:.4g} (60 sets)" in text
    assert "1 of 3 kept, 88% of weights removed; 2 restarts, 1 met" in text


def curve(**other: Any) -> PruningCurve:
    """A pruning curve over three counts with four random orders."""
    random = RNG.normal(size=(4, 3, 9))
    given: dict[str, Any] = {
        "name": "a",
        "counts": np.array([0, 1, 4]),
        "removed": ("a", "b", "c", "d"),
        "per_prompt": X,
        "random_per_prompt": random,
        "n_players": 4,
        "order": "least-first",
        "unit": "nats",
        "higher_is_better": True,
        "seed": 0,
        "made": {},
        "clusters": LABELS,
    }
    return PruningCurve(**given | other)


@oracle("causal/pruning/result.py:PruningCurve.bounds")
@oracle("causal/pruning/result.py:PruningCurve.band")
@oracle("causal/pruning/result.py:PruningCurve._area")
def pruning() -> None:
    c = curve()
    assert c.bounds(0.9) == pytest.approx(np.array([t_interval(x, LABELS, 0.9) for x in X]))
    assert np.isnan(curve(clusters=("a",) * 9).bounds()).all()
    middle = c.random_per_prompt.mean(2)
    rows = curve(held_out_per_prompt=X[::-1], random_per_prompt=c.random_per_prompt)._rows()
    assert rows["held_out"].to_numpy() == pytest.approx(X[::-1].mean(1))
    assert rows["value"].to_numpy() == pytest.approx(X.mean(1))
    assert rows["random_mean"].to_numpy() == pytest.approx(middle.mean(0))
    assert rows["share_removed"].tolist() == [0, 0.25, 1]
    assert rows["last_removed"].tolist() == ["", "a", "d"]
    assert np.isnan(c._rows()["held_out"]).all()
    assert c.band(0.8) == pytest.approx(np.quantile(middle, [0.1, 0.9], axis=0).T)
    for order, better, sign in (
        ("least-first", True, 1),
        ("most-first", True, -1),
        ("least-first", False, -1),
    ):
        c = curve(order=order, higher_is_better=better, random_per_prompt=c.random_per_prompt)
        trapezoids = np.array([1 / 8, 1 / 8 + 3 / 8, 3 / 8])  # over shares 0, 1/4 and 1
        own = sign * trapezoids @ X
        other = sign * np.einsum("c,dcp->dp", trapezoids, c.random_per_prompt)
        value = own.mean() - other.mean()
        low, high = t_interval(own - other.mean(0), LABELS)
        over_prompts = (high - low) / 2 / stats.t.ppf(0.975, 4)
        over_orders = np.std(other.mean(1), ddof=1) / 2
        square = over_prompts**2 + over_orders**2
        df = square**2 / (over_prompts**4 / 4 + over_orders**4 / 3)
        half = stats.t.ppf(0.975, df) * math.sqrt(square)
        assert tuple(c.area) == pytest.approx((value, value - half, value + half))


@oracle("causal/shapley_values/permutations.py:target_reached")
@oracle("causal/shapley_values/solution.py:Solution.sampling_interval")
def samples() -> None:
    means = [np.array([1.0, 4.0]), np.array([2.0, 8.0]), np.array([3.0, 3.0])]
    error = np.std(means, axis=0, ddof=1).max() / math.sqrt(3)
    enough = error * stats.t.ppf(0.975, 2) / stats.norm.ppf(0.975)
    assert permutations.target_reached(means, enough * 1.001, 3)
    assert not permutations.target_reached(means, enough * 0.999, 3)
    assert not permutations.target_reached(means, 1e9, 4)
    assert not permutations.target_reached(means, None, 0)
    self: Any = SimpleNamespace(
        score=np.array([1.0, 2.0]), sampling_sem=np.array([0.1, 0.2]), sampling_df=5.0
    )
    half = stats.t.ppf(0.975, 5) * self.sampling_sem
    found = solution.Solution.sampling_interval.fget(self)
    assert found == pytest.approx(np.stack([self.score - half, self.score + half], 1))


@oracle("cache/methods.py:_row", "cache/methods.py:_ends")
def cache_methods() -> None:
    drawn = np.append(np.linspace(0, 1, 41), np.nan)
    assert methods._ends(drawn, 0.5) == pytest.approx((0.025, 0.975))
    assert methods._ends(drawn, 1.5) == pytest.approx((0.025, 1.5))
    assert methods._ends(drawn, -1.0) == pytest.approx((-1.0, 0.975))
    assert np.isnan(methods._ends(drawn, math.nan)).all()
    row = methods._row("a", "all", 7, 0.5, drawn, np.linspace(2, 3, 41))
    assert [row[k] for k in ("low", "high", "overlap_low", "overlap_high", "overlap")] == (
        pytest.approx([0.025, 0.975, 2.025, 2.975, 2.5])
    )
