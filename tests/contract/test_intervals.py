"""Every function that returns an interval, by a formula written here or in a test named here.

The formulas of `interp/core/` are held by `tests/core/test_interval_formulas.py`. A function
elsewhere that asks it for an interval still chooses values, level, clusters and degrees of freedom;
`test_every_interval_is_held` finds such functions and fails on one that nothing holds.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from interp.alignment import result as alignment
from interp.alignment import translation
from interp.cache import methods
from interp.causal import importance, pairs
from interp.causal.checkpoint import certificate
from interp.causal.comparison import draws as comparison
from interp.causal.gating import result as gating
from interp.causal.pruning import folds
from interp.causal.pruning.result import PruningCurve
from interp.causal.shapley_values import permutations, solution
from interp.circuits import (
    bootstrap,
    gap_columns,
    head_evaluation,
    made_pairs,
    patched_runs,
    published_comparison,
    set_evaluation,
)
from interp.circuits.edge_evaluation import EdgeEvaluation
from interp.circuits.methods.codes import _edges_evaluated, _evaluated
from interp.circuits.variables import rows as variables
from interp.circuits.why import share_check
from interp.core.intervals import EXACT, mean_intervals
from interp.core.rank_statistics import auroc, auroc_interval, jaccard_by_k
from interp.core.registry import METRICS
from interp.core.statistics import bootstrap_interval, holm, ratio_intervals, sign_flip_ps
from interp.dictionaries import explained_attention
from interp.heads.between_models.matches import HeadMatches
from interp.heads.between_models.result import ModelDifferences
from interp.heads.causal_check import head_transfer, sets
from interp.heads.checkpoints import change_points, rises
from interp.heads.needle.copying import CopyPaste
from interp.heads.outliers import channels
from interp.probes import result as probes
from interp.profiles import changes
from interp.profiles.result import Profile
from interp.text.chains.anchors_result import Anchors
from interp.text.context import judgement
from interp.vision import correction, spurious

ROOT = Path(__file__).parents[2]
ASKED = {
    "percentile_interval", "finite_interval", "prediction_band", "share_interval",
    "fraction_interval", "difference_of_shares", "half_width", "around", "bootstrap_interval",
    "bootstrap_bounds", "ratio_intervals", "auroc_interval", "mean_intervals", "site_intervals",
    "interval_between",
}  # fmt: skip
"""Functions of the core that return an interval."""
ELSEWHERE = {
    "cache/cards.py:token_budgets": "cache/test_plan.py::test_budgets_by_hand",
    "causal/checkpoint/certificate.py:judged_task":
        "causal/test_certificate.py::test_random_sets_are_drawn_in_the_units_of_the_removal",
    "causal/importance.py:make_importance": "causal/test_intervals.py::"
        "test_the_table_of_an_ablation_states_the_intervals_of_its_players",
    "heads/needle/choice.py:selection_stability": "heads/experiments/test_retrieval.py::"
        "test_the_interval_of_a_count_is_that_of_the_bootstrap",
    "heads/score_rows.py:_records": "heads/test_score_intervals.py::"
        "test_the_interval_of_every_score_is_the_one_of_its_values_over_clusters",
    "profiles/reading_clusters.py:_Judge.behaviours":
        "profiles/test_reading_clusters.py::test_false_splits_and_missed_ones_are_rare",
    "profiles/reading_clusters.py:_Judge.behaviours.above":
        "profiles/test_reading_clusters.py::test_false_splits_and_missed_ones_are_rare",
}  # fmt: skip
"""Functions that need a model or a whole result, and the tests that hold them."""
ORACLES: dict[str, Callable[[], None]] = {}
RNG = np.random.default_rng(11)
X = RNG.normal(1, 2, (3, 9)).round(3)
"""Three rows of values on nine prompts."""
LABELS = tuple("aabbbccde")
WHOLE = X[2] ** 2 + 1


def oracle(*names: str) -> Callable[[Any], Any]:
    """Register a check as that of some functions, named by file and qualified name."""

    def register(check: Callable[[], None]) -> Callable[[], None]:
        ORACLES.update(dict.fromkeys(names, check))
        return check

    return register


def t_interval(x: Any, labels: Any = None, level: float = 0.95) -> tuple[float, float]:
    """The t interval of a mean, over clusters by leaving each out in turn."""
    groups = list(range(len(x))) if labels is None else list(labels)
    names = list(dict.fromkeys(groups))
    left = np.array([np.mean([v for v, g in zip(x, groups, strict=True) if g != n]) for n in names])
    k = len(names)
    sem = math.sqrt((k - 1) / k * ((left - left.mean()) ** 2).sum())
    half = stats.t.ppf((1 + level) / 2, k - 1) * sem
    return float(np.mean(x) - half), float(np.mean(x) + half)


@oracle("alignment/result.py:interval_of_draws")
def draws_of_sentences() -> None:
    drawn = RNG.normal(size=(50, 2))
    found = alignment.interval_of_draws(drawn, 0.9, 6)
    tails = stats.norm.cdf(math.sqrt(6 / 5) * stats.t.ppf([0.05, 0.95], 5))
    assert found == pytest.approx(np.quantile(drawn, tails, axis=0).T)
    assert np.isnan(alignment.interval_of_draws(drawn, 0.9, 1)).all()


@oracle("alignment/translation.py:_reflected")
def reflected() -> None:
    drawn = np.linspace(0, 0.4, 41)  # 95 %: 0.01 to 0.39
    assert translation._reflected(0.3, drawn, 1.0) == pytest.approx((0.01, 0.59))
    assert translation._reflected(0.1, drawn, 1.0) == pytest.approx((-0.19, 0.39))
    assert translation._reflected(0.9, drawn, 1.0) == pytest.approx((0.01, 1.0))
    assert translation._reflected(-0.9, drawn, 1.0) == pytest.approx((-1.0, 0.39))
    assert translation._reflected(0.3, drawn, 0.0) == (-1.0, 1.0)


@oracle("alignment/translation.py:reliability")
def reliability() -> None:
    values = RNG.normal(size=(2, 4, 9)) + np.arange(4)[:, None]
    shares = []
    for one in values:
        apart = one - one.mean(0)
        noise = np.mean([row.var(ddof=1) / 9 for row in apart])
        shares.append(1 - noise / apart.mean(1).var(ddof=1))
    assert translation.reliability(values) == pytest.approx(min(shares))
    assert translation.reliability(-values * 3 + 1) == pytest.approx(min(shares))
    assert translation.reliability(values - np.arange(4)[:, None] * 1.001) < min(shares)
    for shape in ((1, 1, 9), (1, 4, 1)):
        assert math.isnan(translation.reliability(np.ones(shape)))
    assert translation.reliability(RNG.normal(size=(2, 2, 2))) >= 0


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
    scores = importance.Importance(per_prompt=many, clusters=names, sampling_sem=sampling[0],
                                   sampling_df=4.0, **made)  # fmt: skip
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
        "shapley", "sampled", ("a", "b", "c"), np.array([[0, 1], [0, 2], [1, 2]]), many,
        sampling, "nats", {}, names,
    )  # fmt: skip
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
        gate=np.ones((2, 3)), settled=(True, False), labels=("x", "y", "z"), kept=("x",),
        cost=np.array([1.0, 2.0, 5.0]), cost_unit="weights", method="m", upper=None, unit="nats",
        held_out=held, clusters=LABELS,
    )  # fmt: skip
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
        "name": "a", "counts": np.array([0, 1, 4]), "removed": ("a", "b", "c", "d"),
        "per_prompt": X, "random_per_prompt": random, "n_players": 4, "order": "least-first",
        "unit": "nats", "higher_is_better": True, "seed": 0, "made": {}, "clusters": LABELS,
    }  # fmt: skip
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
    for order, better, sign in (("least-first", True, 1), ("most-first", True, -1),
                                ("least-first", False, -1)):  # fmt: skip
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


@oracle("circuits/bootstrap.py:ranking_stability", "circuits/bootstrap.py:stability_rows")
def stability() -> None:
    scores = RNG.normal(size=(5, 9)) + 0.4 * np.arange(5)[:, None]
    for labels in (None, LABELS):
        groups = labels or tuple(range(9))
        names = list(dict.fromkeys(groups))
        rng = np.random.default_rng([2, 7])
        drawn = []
        for row in rng.integers(0, len(names), (60, len(names))):
            at = [i for d in row for i, g in enumerate(groups) if g == names[d]]
            drawn.append(jaccard_by_k(scores.mean(1), scores[:, at].mean(1)))
        rows = bootstrap.stability_rows(
            scores, "heads", "pairs", draws=60, seed=2, clusters=labels, also=(3, 99)
        )
        assert [r["k"] for r in rows] == [1, 2, 3, 4]
        for row in rows:
            each = np.array(drawn)[:, row["k"] - 1]
            want = each.mean(), *np.quantile(each, [0.025, 0.975])
            assert (row["jaccard"], row["low"], row["high"]) == pytest.approx(want)
        assert {(r["n"], r["drawn"]) for r in rows} == (
            {(9, "pairs")} if labels is None else {(5, "clusters of pairs")}
        )
        if labels is None:
            found = bootstrap.ranking_stability(scores, 2, draws=60, seed=2)
            each = np.array(drawn)[:, 1]
            assert found == pytest.approx((each.mean(), *np.quantile(each, [0.025, 0.975])))
    assert bootstrap.stability_rows(scores[:1], "heads", "pairs") == []
    assert bootstrap.stability_rows(scores[:, :1], "heads", "pairs") == []


@oracle("circuits/gap_columns.py:gap_columns", "circuits/set_evaluation.py:SetEvaluation.ratio")
@oracle("circuits/head_evaluation.py:Evaluation.share_interval")
@oracle("circuits/patched_runs.py:PatchedRuns.share")
def shares_of_a_gap() -> None:
    ends = ratio_intervals(X, WHOLE, clusters=LABELS)
    share = X.mean(1) / WHOLE.mean()
    columns = gap_columns.gap_columns(X, WHOLE, LABELS)
    assert columns["share"] == pytest.approx(share)
    assert columns["score"] == pytest.approx(X.mean(1))
    assert np.stack([columns["share_low"], columns["share_high"]], 1) == pytest.approx(ends)
    self: Any = SimpleNamespace(gap=WHOLE, clusters=LABELS)
    rows = set_evaluation.SetEvaluation.ratio(self, X)
    assert rows == [pytest.approx((s, *e)) for s, e in zip(share, ends, strict=True)]
    assert set_evaluation.SetEvaluation.ratio(self, np.zeros((0, 9))) == []
    self = SimpleNamespace(full=WHOLE + 1, empty=np.ones(9), clusters=LABELS)
    found = head_evaluation.Evaluation.share_interval(self, X[1])
    assert found == pytest.approx(tuple(ends[1]))
    first, second = np.arange(4), np.arange(4, 9)
    for labels in (None, LABELS, ("a",) * 9):
        self = SimpleNamespace(
            gap=WHOLE.mean(), clean=WHOLE + 2, corrupted=np.full(9, 2.0), first=first,
            second=second, task=SimpleNamespace(clusters=labels), kept=lambda *_: X[:1],
        )  # fmt: skip
        share = patched_runs.PatchedRuns.share(self, None, "stage")
        own = (X[0, x].mean() / WHOLE[x].mean() for x in (second, first))
        part = None if labels is None else [labels[i] for i in second]
        [want] = (
            [(-math.inf, math.inf)]
            if labels == ("a",) * 9
            else ratio_intervals(X[:1, second], WHOLE[second], clusters=part)
        )
        assert tuple(share) == pytest.approx((next(own), *want, next(own)))


@oracle("circuits/head_evaluation.py:Evaluation.area_interval")
@oracle("circuits/head_evaluation.py:Evaluation._rows")
def areas() -> None:
    sizes, per_prompt = (0, 1, 3), np.stack([np.zeros(9), np.abs(X[0]), WHOLE])
    random = RNG.uniform(0, 2, (30, 3))
    e: Any = SimpleNamespace(
        sizes=sizes, per_prompt=per_prompt, full=WHOLE, empty=np.full(9, 0.1), seed=4,
        clusters=LABELS, random=random, ablation="mean", faithfulness=np.array([0.0, 0.4, 1.0]),
        circuit=SimpleNamespace(head_names=tuple("abc")), _area=lambda *_: None,
    )  # fmt: skip
    names, found = list("abcde"), {"cmd": [], "cpr": []}
    for row in np.random.default_rng([4, 5]).integers(0, 5, (head_evaluation.DRAWS, 5)):
        at = [i for d in row for i, g in enumerate(LABELS) if g == names[d]]
        f = (per_prompt[:, at].mean(1) - 0.1) / (WHOLE[at].mean() - 0.1)
        for what, height in (("cmd", np.abs(1 - f)), ("cpr", f)):
            # trapezoids over the share of heads
            found[what].append((height[0] + height[1]) / 2 / 3 + (height[1] + height[2]) / 3)
    self = head_evaluation.Evaluation.area_interval
    for what, each in found.items():
        assert self(e, what) == pytest.approx(tuple(np.quantile(each, [0.025, 0.975])))
    frame = head_evaluation.Evaluation._rows(e)
    drawn = (random - 0.1) / (WHOLE.mean() - 0.1)
    assert frame["random"].to_numpy() == pytest.approx(drawn.mean(0))
    band = frame[["random_low", "random_high"]].to_numpy()
    assert band == pytest.approx(np.quantile(drawn, [0.025, 0.975], axis=0).T)
    assert frame["share"].tolist() == pytest.approx([0, 1 / 3, 1])
    assert frame["value"].to_numpy() == pytest.approx(per_prompt.mean(1))


@oracle("circuits/head_evaluation.py:Evaluation.against_truth")
@oracle("circuits/edge_evaluation.py:EdgeEvaluation.against_truth")
@oracle("circuits/methods/codes.py:_evaluated", "circuits/methods/codes.py:_edges_evaluated")
@oracle("circuits/published_comparison.py:bounds_of_area")
@oracle("circuits/published_comparison.py:published_figures")
def known_circuits() -> None:
    names = tuple(f"L0H{i}" for i in range(8))
    score = np.array([0.1, -3.0, 0.2, 2.0, 0.3, 0.0, -0.5, 0.4])
    known = np.array([i in (1, 4, 6) for i in range(8)])
    truth = tuple(n for n, k in zip(names, known, strict=True) if k)
    size = np.abs(score)
    area, ends = auroc(size, known), auroc_interval(size, known, seed=9)
    circuit = SimpleNamespace(head_names=names, nodes=names, largest=score, task="t")
    self: Any = SimpleNamespace(truth=truth, circuit=circuit, seed=9)
    found = head_evaluation.Evaluation.against_truth(self)
    assert (found["auroc"], found["low"], found["high"]) == pytest.approx((area, *ends))
    between = tuple((n, "L1H0.q") for n in names)
    given = SimpleNamespace(edges=(*between[:7], ("mlp0", "logits")), edge_score=score, task="t")
    self = SimpleNamespace(
        truth=tuple((n, "L1H0.q") for n in truth), circuit=given, seed=9, between=between
    )
    found = EdgeEvaluation.against_truth(self)
    size[7] = 0.0  # an edge that the circuit does not score
    want = auroc(size, known), *auroc_interval(size, known, seed=9)
    assert (found["auroc"], found["low"], found["high"], found["of"]) == pytest.approx((*want, 8))

    row = _evaluated("a", score, known)
    want = auroc(score, known), *auroc_interval(score, known)
    assert (row["auroc"], row["low"], row["high"]) == pytest.approx(want)
    assert (row["heads"], row["in_circuit"]) == (8, 3)
    order = np.argsort(-score)[:3]
    assert row["precision_at_size"] == pytest.approx(known[order].mean())
    layers = np.array([0, 0, 1, 1])
    four, matrix = ["L0H0", "L0H1", "L1H0", "L1H1"], RNG.uniform(size=(4, 4))
    tables = _edges_evaluated(
        {"a": matrix}, four, layers, {frozenset(("L0H1", "L1H0"))}, ["L0H1", "L1H0"]
    )
    flat = np.array([matrix[0, 2], matrix[0, 3], matrix[1, 2], matrix[1, 3]])
    mask = np.array([False, False, True, False])
    [row] = tables["edge_evaluation"]
    want = auroc(flat, mask), *auroc_interval(flat, mask)
    assert (row["auroc"], row["low"], row["high"]) == pytest.approx(want)
    at_k = {r["k"]: r for r in tables["edges_at_k"]}
    assert set(at_k) == {1, 2}
    first = np.argsort(-flat)
    for k, one in at_k.items():
        assert one["precision"] == pytest.approx(mask[first[:k]].mean())
        assert one["recall"] == pytest.approx(mask[first[:k]].sum())
        assert one["chance"] == 1 / 4

    compared: Any = SimpleNamespace(
        effect=score, known=known, found=2, of=3,
        columns={"metric": [published_comparison.AUROC, "other"]},
    )  # fmt: skip
    bounds = published_comparison.bounds_of_area(compared, 0.9)
    assert bounds[0] == pytest.approx(auroc_interval(score, known, tails=(0.05, 0.95)))
    assert np.isnan(bounds[1]).all()
    assert published_comparison.bounds_of_area(compared, 0.95)[0] == pytest.approx(
        auroc_interval(score, known)
    )
    figures = published_comparison.published_figures(compared)
    assert list(figures.values()) == pytest.approx(
        [auroc(score, known), *auroc_interval(score, known), 2, 3]
    )


def wilson(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share."""
    z, p = stats.norm.ppf((1 + level) / 2), hits / n
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return middle - half, middle + half


@oracle("circuits/made_pairs.py:MadePairs.preferred_share")
@oracle("circuits/variables/rows.py:_quantiles", "heads/checkpoints/rises.py:rise_order")
@oracle("text/context/judgement.py:stated_and_observed", "vision/spurious.py:_follows")
@oracle("text/context/judgement.py:bounds_of_precision")
def shares() -> None:
    self: Any = SimpleNamespace(preferred=3, measured=8)
    found = made_pairs.MadePairs.preferred_share.fget(self)
    assert found == pytest.approx((3 / 8, *wilson(3, 8)))
    none = SimpleNamespace(preferred=0, measured=0)
    assert made_pairs.MadePairs.preferred_share.fget(none) == (0, 0, 1)

    hits = np.arange(12) < 5
    runs: Any = SimpleNamespace(rows=[SimpleNamespace(template=0)] * 12)
    ends = variables._quantiles(hits, runs)
    for p, end in zip(variables.PROBABILITIES, ends, strict=True):
        assert end == pytest.approx(wilson(5, 12, abs(1 - 2 * p))[p > 0.5])
    assert ends == sorted(ends)

    times = {"a": [1, 2, 3, math.nan, 5], "b": [2, 2, 1, 4, 6]}
    [row] = rises.rise_order(times, level=0.9).to_dict("records")  # 2 before, one equal, of 4
    assert (row["share"], row["n"]) == (2.5 / 4, 4)
    assert row["low"] == pytest.approx(wilson(2, 4, 0.9)[0])
    assert row["high"] == pytest.approx(wilson(3, 4, 0.9)[1])

    p, truth = np.array([0.1, 0.15, 0.9, 0.95, 0.7]), np.array([0, 1, 1, 1, 0], bool)
    judged: Any = SimpleNamespace(
        confidence=p[None], truth=truth, way=["a"], columns={"way": ["a"]}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judgement, "_at", lambda *_: 0)
        frame = judgement.stated_and_observed(judged, "a", bins=2)
    assert frame["sentences"].tolist() == [2, 3]
    assert frame["observed"].tolist() == pytest.approx([1 / 2, 2 / 3])
    assert frame["stated"].tolist() == pytest.approx([0.125, 0.85])
    for at, (hit, n) in enumerate(((1, 2), (2, 3))):
        assert frame.loc[at, ["low", "high"]].tolist() == pytest.approx(wilson(hit, n))

    import pandas as pd

    score, sem = np.array([0.5, 1.0]), np.array([0.3, 0.0])
    rows: Any = SimpleNamespace(
        score=score, n=np.array([4, 4]),
        wide=lambda: pd.DataFrame({"score": score, "sem": sem, "n": [4, 4]}),
    )  # fmt: skip
    bounds = judgement.bounds_of_precision(rows, 0.9)
    half = stats.t.ppf(0.95, 3) * 0.3
    low, high = wilson(2, 4, 0.9)
    assert bounds[0] == pytest.approx((min(low, 0.5 - half), max(high, 0.5 + half)))
    assert bounds[1] == pytest.approx(wilson(4, 4, 0.9))

    # of 5 classes, a wrong choice is the cue's by chance in 1 of 4
    for number, n in ((4, 8), (5, 8), (2, 8)):
        chosen, cues = np.arange(n) < number, np.ones(n)
        assert spurious._follows(chosen, cues, 5) == (wilson(number, n)[0] > 1 / 4)
    assert spurious._follows(np.zeros(3), np.ones(3), 2)
    assert not spurious._follows(np.zeros(0), np.zeros(0), 2)


@oracle("circuits/why/share_check.py:_correlation")
def correlation() -> None:
    x, y = RNG.normal(size=(2, 4, 12))
    y = y + x
    x[1, 3] = np.nan
    groups = [np.arange(3 * i, 3 * i + 3) for i in range(4)]
    import inspect

    given = dict.fromkeys(inspect.signature(share_check._correlation).parameters)
    labels = [f"c{i // 3}" for i in range(12)]
    values: dict[str, Any] = {"x": x, "y": y, "prompts": np.arange(12), "clusters": labels,
                              "seed": 6}  # fmt: skip
    if not set(given) <= set(values):
        pytest.fail(f"_correlation now takes {list(given)}")
    found = share_check._correlation(**{k: values[k] for k in given})
    here = ~np.isnan(x)
    assert found[0] == pytest.approx(np.corrcoef(x[here], y[here])[0, 1])
    drawn = []
    for row in np.random.default_rng(6).integers(0, 4, (share_check.DRAWS, 4)):
        at = np.concatenate([groups[i] for i in row])
        a, b = x[:, at], y[:, at]
        drawn.append(np.corrcoef(a[~np.isnan(a)], b[~np.isnan(a)])[0, 1])
    assert found[1:] == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))


@oracle("heads/causal_check/head_transfer.py:judge_transfers")
def transfers() -> None:
    heads = ["L0H0", "L0H1", "L0H2"]
    ablated, other = np.abs(X) + 1, np.abs(X) * np.array([[0.2], [3.0], [2.0]])
    same = np.abs(X[::-1]) * 0.1
    for claim, sign in (("answer", 1), ("step", -1)):
        found = head_transfer.judge_transfers(
            heads, claim, "nats", ablated, other, same, clusters=LABELS, level=0.9, seed=3
        )
        ends = bootstrap_interval(sign * (other - same), 0.9, clusters=LABELS, seed=3)
        sums = np.zeros((3, 5))
        np.add.at(sums.T, ["abcde".index(c) for c in LABELS], (sign * (other - same)).T)
        p = holm(np.where(sums.sum(1) > 0, sign_flip_ps(sums, seed=3), 1.0))
        for one, want, chance in zip(found, ends, p, strict=True):
            assert (one.low, one.high) == pytest.approx(tuple(want))
            assert one.p == pytest.approx(chance)
            assert (one.n, one.n_clusters) == (9, 5)
        differences = sign * (other - same).mean(1)
        assert [one.difference for one in found] == pytest.approx(differences.tolist())


@oracle("heads/causal_check/sets.py:_middle", "heads/causal_check/sets.py:_edges")
@oracle("heads/checkpoints/change_points.py:_interval")
@oracle("heads/outliers/channels.py:disruption_row")
def draws_of_heads() -> None:
    rows = RNG.normal(size=(40, 9))
    means = rows.mean(1)
    want = np.median(means), *np.quantile(means, [0.05, 0.9])
    assert sets._middle(rows, (0.05, 0.9)) == pytest.approx(want)
    assert np.isnan(sets._middle(rows[:0], (0.05, 0.9))).all()
    assert sets._edges(means, (0.05, 0.9)) == pytest.approx(want[1:])
    assert np.isnan(sets._edges(np.array([1.0, np.nan]), (0.1, 0.9))).all()

    steps = np.concatenate([RNG.normal(0, 1, (4, 9)), RNG.normal(1, 1, (3, 9))])  # [step, prompt]
    times = np.random.default_rng(8).multinomial(5, [0.2] * 5, size=70)
    which = np.array(["abcde".index(c) for c in LABELS])
    cuts = []
    for row in times:
        curve = steps @ (row[which] / row[which].sum())
        gain = [k * (7 - k) / 7 * (curve[k:].mean() - curve[:k].mean()) ** 2 for k in range(1, 7)]
        cuts.append(1 + int(np.argmax(gain)))
    low, high = np.quantile(cuts, [0.025, 0.975])
    found = change_points._interval(steps, LABELS, 70, 8)
    assert found == (math.floor(low), math.ceil(high))

    row = channels.disruption_row({"task": "t", "parts": "q", "fill": "mean"}, WHOLE, X[0], X[1],
                                  LABELS, {}).wide()  # fmt: skip
    want = bootstrap_interval((X[0] - X[1])[None], clusters=LABELS)[0]
    assert row[["low", "high"]].to_numpy()[0] == pytest.approx(want)
    assert row["difference"][0] == pytest.approx((X[0] - X[1]).mean())


@oracle("heads/between_models/matches.py:HeadMatches.preserved")
@oracle("heads/between_models/matches.py:HeadMatches._intervals")
@oracle("heads/needle/copying.py:CopyPaste._intervals")
def shares_of_heads() -> None:
    similar = RNG.uniform(0.3, 0.9, (3, 9))
    similar[2] = np.nan  # a head without a match
    labels = (*tuple(f"p{i}" for i in range(8)), "p7")
    rows = tuple({"stack": "decoder", "layer": layer, "head": 0, "head_b": b, "null": 0.2, "p": 0.1}
                 for layer, b in ((0, "L0H1"), (1, "L3H0"), (1, "")))  # fmt: skip
    found = HeadMatches(rows, similar, labels, "patterns", "share", {})
    frame = found.preserved()
    beyond = np.nan_to_num((similar - 0.2) / 0.8)
    for at, which in enumerate(([0, 1, 2], [0], [1, 2])):
        mean = beyond[which].mean(0)
        assert frame["share"][at] == pytest.approx(mean.mean())
        want = mean_intervals(mean[None], clusters=labels).ends[0]
        assert frame.loc[at, ["low", "high"]].to_numpy(float) == pytest.approx(want)
    assert frame["layers_b"].tolist() == ["L0: 1, L3: 1", "L0: 1", "L3: 1"]
    assert (frame["heads"].tolist(), frame["matched"].tolist()) == ([3, 1, 2], [2, 1, 1])
    sparse = np.where(np.arange(9) < 2, 0.9, 0.0) * np.ones((3, 1))  # bounds give the interval
    for metric, least in (("patterns", 0.0), ("circuits", -1.0)):
        given = HeadMatches(rows, np.where(np.isnan(similar), np.nan, sparse), None, metric, "", {})
        found = given._intervals(0.9)
        want = mean_intervals(sparse[:2], 0.9, bounds=(least, 1.0)).ends
        assert not np.isnan(want).any()
        assert found.ends[:2] == pytest.approx(want)
        assert np.isnan(found.ends[2]).all()
        assert found.why_not == ("", "", "the head has no match")

    import torch

    site: Any = type("Place", (), {"stack": "decoder", "layer": 0})()  # has a hash
    values = {site: torch.tensor(sparse.T)}
    for authors, most in ((False, 1.0), (True, None)):
        self: Any = SimpleNamespace(values=values, _kept=[2, 0], clusters=None,
                                    provenance={"options": {"authors": authors}})  # fmt: skip
        found = CopyPaste._intervals(self, 0.9)
        want = mean_intervals(sparse[:2], 0.9, bounds=(0.0, most))
        assert found.ends == pytest.approx(want.ends, nan_ok=True)
        assert found.why_not == want.why_not


@oracle("heads/between_models/result.py:ModelDifferences._intervals")
def differences_of_models() -> None:
    names = (*tuple(f"c{i}" for i in range(7)), "c6", "c6")
    about = {"stack": "decoder", "layer": 0, "head": 0, "metric": "entropy", "unit": ""}
    alone = about | {"score_a": 0.0, "score_b": 1.0, "n_a": 1, "n_b": 1, "n_paired": 1}
    paired = about | {"score_a": 0.0, "score_b": float(X[1].mean()), "n_a": 4, "n_b": 4,
                      "n_paired": 4, "spread_paired": 0.6}  # fmt: skip
    groups = paired | {"n_paired": 0, "n_a": 3, "n_b": 5, "spread_a": 0.3, "spread_b": 0.5}
    weights = alone | {"metric": "ov_copying"}
    bounded, few = alone | {"metric": "induction"}, np.where(np.arange(9) < 2, 0.5, 0.0)
    assert METRICS.ranges()["induction"] == (0.0, 1.0)
    values = np.stack([X[0], X[1], X[1], np.full(9, np.nan), few])
    labels = {"entropy": names, "ov_copying": None, "induction": None}
    found = ModelDifferences((alone, paired, groups, weights, bounded), values, labels)
    ends, why = found._intervals(0.9)
    assert ends[0] == pytest.approx(mean_intervals(X[:1], 0.9, clusters=names).ends[0])
    want = mean_intervals(few[None], 0.9, bounds=(-1.0, 1.0)).ends[0]  # of differences
    assert ends[4] == pytest.approx(want)
    assert None in METRICS.ranges()["entropy"]
    low, high = t_interval(X[1], names)
    sem = (high - low) / 2 / stats.t.ppf(0.975, 6)
    for at, others in ((1, [(0.6 / 2, 3)]), (2, [(0.3 / 3**0.5, 2), (0.5 / 5**0.5, 4)])):
        parts = [(sem, 6), *others]
        square = sum(s**2 for s, _ in parts)
        df = square**2 / sum(s**4 / d for s, d in parts)
        half = stats.t.ppf(0.95, df) * math.sqrt(square)
        assert ends[at] == pytest.approx((X[1].mean() - half, X[1].mean() + half))
        assert found._tested()["p"][at] == pytest.approx(
            2 * stats.t.sf(abs(X[1].mean()) / math.sqrt(square), df)
        )
        assert found._tested()["sem"][at] == pytest.approx(math.sqrt(square))
    assert np.isnan(ends[3]).all()
    assert why == ("", "", "", EXACT, "")


@oracle("text/chains/anchors_result.py:Anchors.agreement")
def anchors() -> None:
    of_chain = np.repeat([0, 1], [8, 6])
    one, other = RNG.normal(size=(2, 14))
    other = other + one
    self: Any = SimpleNamespace(values={"a": one, "b": other}, of_chain=of_chain, chains=("x", "y"))
    [row] = Anchors.agreement(self, n_boot=60, seed=3).to_dict("records")
    parts = [(one[of_chain == c], other[of_chain == c]) for c in (0, 1)]
    assert row["spearman"] == pytest.approx(np.mean([stats.spearmanr(*p).statistic for p in parts]))
    rng = np.random.default_rng(3)
    drawn = np.array([
        [stats.spearmanr(x[at], y[at]).statistic for at in rng.integers(0, len(x), (60, len(x)))]
        for x, y in parts
    ])  # fmt: skip
    chosen = rng.integers(2, size=(2, 60))
    each = np.take_along_axis(drawn, chosen, 0).mean(0)
    want = np.quantile(each, [0.025, 0.975])
    assert (row["low"], row["high"]) == pytest.approx(tuple(want))
    null = np.mean([
        [stats.spearmanr(x, p).statistic for p in rng.permuted(np.tile(y, (60, 1)), axis=1)]
        for x, y in parts
    ], 0)  # fmt: skip
    assert row["null"] == pytest.approx(null.mean())

    def detrended(x: Any) -> Any:
        r, at = stats.rankdata(x), np.arange(len(x))
        return r - np.polyval(np.polyfit(at, r, 1), at)

    beside = [(detrended(x).round(9), detrended(y).round(9)) for x, y in parts]
    score = np.mean([stats.spearmanr(*p).statistic for p in beside])
    again = np.mean([
        [stats.spearmanr(x, p).statistic for p in rng.permuted(np.tile(y, (60, 1)), axis=1)]
        for x, y in beside
    ], 0)  # fmt: skip
    p = [(1 + (np.abs(n) >= abs(s) - 1e-9).sum()) / 61
         for n, s in ((null, row["spearman"]), (again, score))]  # fmt: skip
    assert row["p"] == pytest.approx(max(p))
    assert (row["chains"], row["sentences"]) == (2, 14)
    rising = SimpleNamespace(
        values={"a": one * 0, "b": other}, of_chain=of_chain, chains=("x", "y")
    )
    [row] = Anchors.agreement(rising, n_boot=9).to_dict("records")
    assert np.isnan([row[k] for k in ("spearman", "low", "high", "p")]).all()


@oracle("probes/result.py:interval_over_documents", "profiles/changes.py:_row")
@oracle("profiles/result.py:Profile.bounds")
def documents() -> None:
    values = np.array([0.9, 0.8, 0.95, 0.6, 0.7, 0.85])
    of = np.array([0, 0, 1, 1, 2, 2])
    found = probes.interval_over_documents(lambda kept: float(values[kept].mean()), of, 0.9)
    whole = math.log(values.mean() / (1 - values.mean()))
    left = [values[of != d].mean() for d in range(3)]
    logits = np.array([math.log(x / (1 - x)) for x in left])
    error = math.sqrt(2 / 3 * ((logits - logits.mean()) ** 2).sum())
    half = stats.t.ppf(0.95, 2) * error
    assert found == pytest.approx([1 / (1 + math.exp(-whole - s * half)) for s in (-1, 1)])
    # all agree: the rarest share of which three draws of a document are 1 in 20 times
    assert probes.interval_over_documents(lambda _: 1.0, of, 0.9) == pytest.approx(
        (0.05 ** (1 / 3), 1)
    )
    assert probes.interval_over_documents(lambda _: 0.0, of, 0.9) == pytest.approx(
        (0, 1 - 0.05 ** (1 / 3))
    )

    head = {"stack": "decoder", "layer": 0, "head": 1}
    row = changes._row(head, "on:x", 1.0, 1.5, 0.2, 6, 30, "share")
    half = stats.t.ppf(0.975, 6) * 0.2
    assert (row["low"], row["high"]) == pytest.approx((0.5 - half, 0.5 + half))
    assert row["p"] == pytest.approx(2 * stats.t.sf(2.5, 6))
    assert row["score"] == 0.5
    few = changes._row(head, "on:x", 1.0, 9.0, 0.2, 6, 4, "share")
    assert few["p"] == 2.0**-3  # the chance that the signs of four agree
    assert changes._row(head, "on:x", 1.0, 1.0, 0.0, 6, 4, "share")["p"] == 1
    nothing = changes._row(head, "on:x", 1.0, 1.5, math.nan, 6, 30, "share")
    assert np.isnan([nothing[k] for k in ("low", "high", "p")]).all()

    from interp.profiles.judgement import PROBABILITIES

    quantiles = np.sort(RNG.normal(size=(2, len(PROBABILITIES))), 1)
    profile: Any = SimpleNamespace(quantiles=quantiles)
    at = np.array([PROBABILITIES.index(p) for p in (0.025, 0.975)])
    assert Profile.bounds(profile) == pytest.approx(quantiles[:, at])


@oracle("vision/correction.py:bounds_of_accuracy", "vision/correction.py:bounds_of_worst")
@oracle("vision/spurious.py:SpuriousVotes._errors")
def vision() -> None:
    group = ["a"] * 6 + ["b"] * 8
    before = np.array([1, 1, 1, 0, 1, 1, 1, 0, 0, 1, 0, 0, 1, 0], bool)
    after = np.array([1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1], bool)
    import pandas as pd

    table = pd.DataFrame(
        {"group": ["a", "b", "b", *[correction.WORST] * 3],
         "when": ["before", "before", "after", "before", "after", "gain"]}
    )  # fmt: skip
    found: Any = SimpleNamespace(
        facts={"group": group}, before=before, after=after, seed=5, wide=lambda: table
    )
    bounds = correction.bounds_of_accuracy(found, 0.9)
    assert bounds[:3] == pytest.approx(
        np.array([wilson(5, 6, 0.9), wilson(3, 8, 0.9), wilson(7, 8, 0.9)])
    )
    # the lowest of both groups: upper ends hold together by Bonferroni
    for row, counts in ((3, ((5, 6), (3, 8))), (4, ((5, 6), (7, 8)))):
        low = min(wilson(*c, 0.9)[0] for c in counts)
        assert bounds[row] == pytest.approx((low, min(wilson(*c, 0.95)[1] for c in counts)))
    rng, worst = np.random.default_rng(5), np.full((2, correction.DRAWS), np.inf)
    for start, n in ((0, 6), (6, 8)):
        at = start + rng.integers(0, n, (correction.DRAWS, n))
        worst = np.minimum(worst, np.stack([right[at].mean(1) for right in (before, after)]))
    assert bounds[5] == pytest.approx(np.quantile(worst[1] - worst[0], [0.05, 0.95]))

    self: Any = SimpleNamespace(
        notes={"of them wrong": 9, "images whose cue conflicts": 29}, parts=("x", "y"),
        extra={"votes_wrong": [5, 0], "votes_right": [10, 20]},
    )  # fmt: skip
    error, ends = spurious.SpuriousVotes._errors(self, 0.9)
    for i, (a, b) in enumerate(((6 / 11, 11 / 22), (1 / 11, 21 / 22))):
        sem = math.sqrt(a * (1 - a) / 11 + b * (1 - b) / 22)
        assert error[i] == pytest.approx(sem)
        half, score = stats.norm.ppf(0.95) * sem, (5 / 9 - 10 / 20, -1.0)[i]
        assert ends[i] == pytest.approx(
            (min(max(a - b - half, -1), score), max(a - b + half, score))
        )


def asking() -> Iterator[str]:
    """Name every function outside the core that asks the core for an interval."""
    for path in sorted((ROOT / "interp").rglob("*.py")):
        file = path.relative_to(ROOT / "interp").as_posix()
        text = path.read_text(encoding="utf-8")
        if file.startswith("core/") or not any(name in text for name in ASKED):
            continue
        tree = ast.parse(text)
        given = {
            a.asname or a.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("interp.core")
            for a in node.names
            if a.name in ASKED
        }
        yield from _asking(tree, given, f"{file}:")


def _asking(node: ast.AST, given: set[str], within: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            name = f"{within}{child.name}"
            calls = {getattr(x.func, "id", "") for x in ast.walk(child) if isinstance(x, ast.Call)}
            if isinstance(child, ast.FunctionDef) and calls & given:
                yield name
            yield from _asking(child, given, f"{name}.")
        else:
            yield from _asking(child, given, within)


def test_every_interval_is_held() -> None:
    """A new function with an interval needs a formula here, or the name of its test."""
    found = set(asking())
    assert found <= {*ORACLES, *ELSEWHERE}
    assert set(ELSEWHERE) <= found
    for test in ELSEWHERE.values():
        file, _, name = test.partition("::")
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {re.escape(name)}\(", text, re.MULTILINE), test


@pytest.mark.parametrize("check", dict.fromkeys(ORACLES.values()), ids=lambda x: x.__name__)
def test_intervals_are_those_of_their_formulas(check: Callable[[], None]) -> None:
    check()
