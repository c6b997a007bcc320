"""Formulas of the intervals of alignments, texts and pictures."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from contract.interval_oracles import RNG, oracle, wilson
from scipy import stats

from interp.alignment import result as alignment
from interp.alignment import translation
from interp.circuits import (
    made_pairs,
)
from interp.circuits.variables import rows as variables
from interp.heads.checkpoints import rises
from interp.text.chains.anchors_result import Anchors
from interp.text.context import judgement
from interp.vision import correction, spurious


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

    score, sem = np.array([0.5, 1.0, 0.5]), np.array([0.19, 0.0, 0.3])
    rows: Any = SimpleNamespace(
        score=score,
        n=np.array([4, 4, 4]),
        wide=lambda: pd.DataFrame({"score": score, "sem": sem, "n": [4, 4, 4]}),
    )
    bounds = judgement.bounds_of_precision(rows, 0.9)
    half = stats.t.ppf(0.95, 3) * 0.19
    low, high = wilson(2, 4, 0.9)
    assert 0.5 - half < low, "the spread of the documents decides"
    assert bounds[0] == pytest.approx((min(low, 0.5 - half), max(high, 0.5 + half)))
    assert bounds[1] == pytest.approx(wilson(4, 4, 0.9))
    assert tuple(bounds[2]) == (0, 1), "2.35 * .3 is more than half"

    # of 5 classes, a wrong choice is the cue's by chance in 1 of 4
    for number, n in ((4, 8), (5, 8), (2, 8)):
        chosen, cues = np.arange(n) < number, np.ones(n)
        assert spurious._follows(chosen, cues, 5) == (wilson(number, n)[0] > 1 / 4)
    assert spurious._follows(np.zeros(3), np.ones(3), 2)
    assert not spurious._follows(np.zeros(0), np.zeros(0), 2)


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
    drawn = np.array(
        [
            [
                stats.spearmanr(x[at], y[at]).statistic
                for at in rng.integers(0, len(x), (60, len(x)))
            ]
            for x, y in parts
        ]
    )
    chosen = rng.integers(2, size=(2, 60))
    each = np.take_along_axis(drawn, chosen, 0).mean(0)
    want = np.quantile(each, [0.025, 0.975])
    assert (row["low"], row["high"]) == pytest.approx(tuple(want))
    null = np.mean(
        [
            [stats.spearmanr(x, p).statistic for p in rng.permuted(np.tile(y, (60, 1)), axis=1)]
            for x, y in parts
        ],
        0,
    )
    assert row["null"] == pytest.approx(null.mean())

    def detrended(x: Any) -> Any:
        r, at = stats.rankdata(x), np.arange(len(x))
        return r - np.polyval(np.polyfit(at, r, 1), at)

    beside = [(detrended(x).round(9), detrended(y).round(9)) for x, y in parts]
    score = np.mean([stats.spearmanr(*p).statistic for p in beside])
    again = np.mean(
        [
            [stats.spearmanr(x, p).statistic for p in rng.permuted(np.tile(y, (60, 1)), axis=1)]
            for x, y in beside
        ],
        0,
    )
    p = [
        (1 + (np.abs(n) >= abs(s) - 1e-9).sum()) / 61
        for n, s in ((null, row["spearman"]), (again, score))
    ]
    assert row["p"] == pytest.approx(max(p))
    assert (row["chains"], row["sentences"]) == (2, 14)
    rising = SimpleNamespace(
        values={"a": one * 0, "b": other}, of_chain=of_chain, chains=("x", "y")
    )
    [row] = Anchors.agreement(rising, n_boot=9).to_dict("records")
    assert np.isnan([row[k] for k in ("spearman", "low", "high", "p")]).all()


@oracle("vision/correction.py:bounds_of_accuracy", "vision/correction.py:bounds_of_worst")
@oracle("vision/spurious.py:SpuriousVotes._errors")
def vision() -> None:
    group = ["a"] * 6 + ["b"] * 8
    before = np.array([1, 1, 1, 0, 1, 1, 1, 0, 0, 1, 0, 0, 1, 0], bool)
    after = np.array([1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1], bool)
    import pandas as pd

    table = pd.DataFrame(
        {
            "group": ["a", "b", "b", *[correction.WORST] * 3],
            "when": ["before", "before", "after", "before", "after", "gain"],
        }
    )
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
        notes={"of them wrong": 9, "images whose cue conflicts": 29},
        parts=("x", "y"),
        extra={"votes_wrong": [5, 0], "votes_right": [10, 20]},
    )
    error, ends = spurious.SpuriousVotes._errors(self, 0.9)
    for i, (a, b) in enumerate(((6 / 11, 11 / 22), (1 / 11, 21 / 22))):
        sem = math.sqrt(a * (1 - a) / 11 + b * (1 - b) / 22)
        assert error[i] == pytest.approx(sem)
        half, score = stats.norm.ppf(0.95) * sem, (5 / 9 - 10 / 20, -1.0)[i]
        assert ends[i] == pytest.approx(
            (min(max(a - b - half, -1), score), max(a - b + half, score))
        )
