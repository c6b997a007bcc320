"""Formulas of the intervals of circuits."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from contract.interval_oracles import LABELS, RNG, WHOLE, X, oracle

from interp.circuits import (
    gap,
    head_evaluation,
    patched_runs,
    published_comparison,
    set_evaluation,
)
from interp.circuits.edge_evaluation import EdgeEvaluation
from interp.circuits.methods.codes import _edges_evaluated, _evaluated
from interp.circuits.why import share_check
from interp.core.rank_statistics import auroc, auroc_interval
from interp.core.statistics import ratio_intervals


@oracle("circuits/gap.py:gap_columns", "circuits/set_evaluation.py:SetEvaluation.ratio")
@oracle("circuits/head_evaluation.py:Evaluation.share_interval")
@oracle("circuits/patched_runs.py:PatchedRuns.share")
def shares_of_a_gap() -> None:
    ends = ratio_intervals(X, WHOLE, clusters=LABELS)
    share = X.mean(1) / WHOLE.mean()
    columns = gap.gap_columns(X, WHOLE, LABELS)
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
            gap=WHOLE.mean(),
            clean=WHOLE + 2,
            corrupted=np.full(9, 2.0),
            first=first,
            second=first,
            held=second,
            task=SimpleNamespace(clusters=labels),
            kept=lambda *_: X[:1],
            require_gap=lambda: None,
        )
        share = patched_runs.PatchedRuns.share(self, None, "stage")
        own = (X[0, x].mean() / WHOLE[x].mean() for x in (second, first))
        part = None if labels is None else [labels[i] for i in second]
        [want] = (
            [(-math.inf, math.inf)]
            if labels == ("a",) * 9
            else ratio_intervals(X[:1, second], WHOLE[second], clusters=part)
        )
        assert tuple(share) == pytest.approx((next(own), *want, next(own)))


@oracle("circuits/head_evaluation.py:Evaluation._rows")
def random_bands() -> None:
    sizes, per_prompt = (0, 1, 3), np.stack([np.zeros(9), np.abs(X[0]), WHOLE])
    random = RNG.uniform(0, 2, (30, 3))
    e: Any = SimpleNamespace(
        sizes=sizes,
        per_prompt=per_prompt,
        full=WHOLE,
        empty=np.full(9, 0.1),
        seed=4,
        clusters=LABELS,
        random=random,
        ablation="mean",
        faithfulness=np.array([0.0, 0.4, 1.0]),
        circuit=SimpleNamespace(head_names=tuple("abc")),
        _area=lambda *_: None,
    )
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
        effect=score,
        known=known,
        found=2,
        of=3,
        columns={"metric": [published_comparison.AUROC, "other"]},
    )
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


@oracle("circuits/why/share_check.py:_correlation")
def correlation() -> None:
    x, y = RNG.normal(size=(2, 4, 12))
    y = y + x
    x[1, 3] = np.nan
    groups = [np.arange(3 * i, 3 * i + 3) for i in range(4)]
    labels = tuple(f"c{i // 3}" for i in range(12))
    found = share_check._correlation(x, y, labels, 6)
    here = ~np.isnan(x)
    assert found[0] == pytest.approx(np.corrcoef(x[here], y[here])[0, 1])
    drawn = []
    for row in np.random.default_rng(6).integers(0, 4, (share_check.DRAWS, 4)):
        at = np.concatenate([groups[i] for i in row])
        a, b = x[:, at], y[:, at]
        drawn.append(np.corrcoef(a[~np.isnan(a)], b[~np.isnan(a)])[0, 1])
    assert found[1:] == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))
