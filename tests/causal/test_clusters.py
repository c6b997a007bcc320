"""Errors of causal scores are those of clusters where prompts share a period or a template."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from interp.causal import (
    banzhaf,
    compare_importances,
    gate_gradient,
    interactions,
    leave_one_out,
    pruning_curve,
    repeats_task,
    shapley,
)
from interp.causal.pruning.folds import folds
from interp.causal.pruning.result import PruningCurve
from interp.causal.task_file import make_task
from interp.core.clusters import cluster_count, cluster_summary
from interp.core.errors import OptionError
from interp.core.intervals import LEAST_CLUSTERS, around
from interp.core.standard_errors import standard_error
from interp.core.statistics import bootstrap_interval
from interp.heads.outliers.channels import disruption, disruption_row
from interp.report.printed.importance import importance_text

LABELS = ("a", "b", "a", "c", "c", "c", "b", "d")


@pytest.fixture(scope="module")
def gpt2_repeats(gpt2_probe):
    return repeats_task(gpt2_probe, n=10, max_length=6)


@pytest.fixture(scope="module")
def left_out_importance(gpt2_probe, gpt2_repeats):
    return leave_one_out(gpt2_probe, gpt2_repeats)


def test_values_equal_within_clusters_have_the_error_of_cluster_means() -> None:
    rng = np.random.default_rng(0)
    # of each player in each of eight clusters of four prompts; no sum of these is rounded
    means = rng.integers(-64, 64, size=(5, 8)) / 16
    per_prompt = np.repeat(means, 4, axis=1)
    labels = [f"period {i // 4}" for i in range(32)]
    expected = means.std(1, ddof=1) / math.sqrt(8)
    np.testing.assert_allclose(standard_error(per_prompt, labels), expected)
    assert (standard_error(per_prompt) < 0.6 * expected).all()
    drawn = bootstrap_interval(per_prompt, clusters=labels, seed=3)
    np.testing.assert_allclose(drawn, bootstrap_interval(means, seed=3), atol=1e-12)
    corrected = bootstrap_interval(per_prompt, clusters=labels, seed=3, method="bca")
    np.testing.assert_allclose(
        corrected, bootstrap_interval(means, seed=3, method="bca"), atol=1e-12
    )


def test_labels_that_all_differ_change_nothing() -> None:
    values = np.random.default_rng(1).normal(size=(4, 8))
    alone = [str(i) for i in range(8)]
    assert standard_error(values, alone).tolist() == standard_error(values).tolist()
    for method in ("percentile", "bca"):
        one, other = (bootstrap_interval(values, method=method, clusters=x) for x in (None, alone))
        assert one.tolist() == other.tolist()
    for one, other in zip(folds(8, 3, 0), folds(8, 3, 0, alone), strict=True):
        assert one.first.tolist() == other.first.tolist()


def test_a_player_without_scores_leaves_the_others_their_error() -> None:
    values = np.random.default_rng(2).normal(size=(3, 8))
    expected = standard_error(values, LABELS)
    values[1] = math.nan
    assert np.isnan(standard_error(values, LABELS)).tolist() == [False, True, False]
    np.testing.assert_array_equal(standard_error(values, LABELS)[[0, 2]], expected[[0, 2]])


def test_ablation_of_repeats_has_the_errors_of_its_periods(
    gpt2_probe, gpt2_repeats, left_out_importance
) -> None:
    labels = gpt2_repeats.prompts.clusters
    number = cluster_count(10, labels)
    assert 2 < number < 10
    told = cluster_summary(left_out_importance.per_prompt.T, labels)
    frame = left_out_importance.to_pandas()
    assert set(frame["n"]) == {10}
    assert set(frame["clusters"]) == {number}
    rows = left_out_importance.table.to_pandas()
    assert set(rows["n"]) == {10}
    assert set(rows["clusters"]) == {number}
    np.testing.assert_allclose(rows["sem"], told.sem)  # every player is a head, in their order
    few = f"too few: {number} clusters of at least {LEAST_CLUSTERS}"
    assert set(frame["why_no_interval"]) == set(rows["why_no_interval"]) == {few}
    assert f"10 in {number}" in importance_text([left_out_importance], top=3)


def test_prompts_without_labels_count_one_by_one(
    gpt2_probe, gpt2_repeats, left_out_importance
) -> None:
    alone = replace(gpt2_repeats, prompts=replace(gpt2_repeats.prompts, clusters=None))
    plain = leave_one_out(gpt2_probe, alone)
    np.testing.assert_array_equal(plain.per_prompt, left_out_importance.per_prompt)
    values = plain.per_prompt
    assert plain.sem.tolist() == (values.std(1, ddof=1) / math.sqrt(10)).tolist()
    rows = plain.table.to_pandas()
    assert set(rows["clusters"]) == {10}
    assert rows["sem"].tolist() == plain.sem.tolist()
    assert " in " not in importance_text([plain], top=1).splitlines()[2]


def test_every_method_carries_the_clusters(gpt2_probe, gpt2_repeats) -> None:
    labels = gpt2_repeats.prompts.clusters
    number = cluster_count(10, labels)
    players = {"heads": ["L0H0", "L0H1", "L1H0"]}
    for found in (
        shapley(gpt2_probe, gpt2_repeats, method="exact", **players),
        banzhaf(gpt2_probe, gpt2_repeats, max_evaluations=8, method="sampled", **players),
        gate_gradient(gpt2_probe, gpt2_repeats, null="none"),
    ):
        over_prompts = cluster_summary(found.per_prompt.T, labels).sem
        np.testing.assert_allclose(found.sem, over_prompts)
        sampling = np.zeros(1) if found.sampling_sem is None else found.sampling_sem
        rows = found.table.to_pandas()
        whole = np.sqrt(over_prompts**2 + sampling**2)
        np.testing.assert_allclose(rows["sem"].dropna(), whole)
        assert set(rows["clusters"]) == {number}
    pairs = interactions(gpt2_probe, gpt2_repeats, **players)
    np.testing.assert_allclose(pairs.sem, cluster_summary(pairs.per_prompt.T, labels).sem)
    assert set(pairs.to_pandas()["clusters"]) == {number}


def test_prompts_of_one_cluster_have_no_error(
    gpt2_probe, gpt2_repeats, left_out_importance
) -> None:
    one = replace(left_out_importance, clusters=("period 3",) * 10)
    assert np.isnan(one.sem).all()
    assert one.to_pandas()["low"].isna().all()
    few = f"too few: 1 cluster of at least {LEAST_CLUSTERS}"
    assert set(one.interval(0.9)["why_no_interval"]) == {few}
    with pytest.raises(OptionError, match="all 10 prompts are one cluster"):
        one.interval(method="bca")


def test_halves_of_pruning_share_no_cluster(
    gpt2_probe, gpt2_repeats, left_out_importance, tmp_path
) -> None:
    for fold in folds(8, 20, 0, LABELS):
        assert not (fold.first > 0)[fold.second > 0].any()
        for label in "abcd":
            here = [i for i, x in enumerate(LABELS) if x == label]
            for half in (fold.first, fold.second):
                assert len(set(half[here].tolist())) == 1
        assert {x for x, k in zip(LABELS, fold.first, strict=True) if k}.isdisjoint(
            x for x, k in zip(LABELS, fold.second, strict=True) if k
        )
    assert folds(8, 3, 0, ("a",) * 8) == []
    curve = pruning_curve(
        gpt2_probe, gpt2_repeats, left_out_importance, steps=3, n_random=3, n_loops=3
    )
    number = cluster_count(10, gpt2_repeats.prompts.clusters)
    last = cluster_summary(curve.per_prompt[-1:].T, gpt2_repeats.prompts.clusters)
    expected = tuple(around(last.score[:1], [(last.sem[:1], number - 1.0)])[0])
    assert tuple(curve.bounds()[-1]) == pytest.approx(expected)
    assert set(curve.to_pandas()["n_clusters"]) == {number}
    curve.save(tmp_path)
    again = PruningCurve.read(tmp_path)
    assert again.clusters == gpt2_repeats.prompts.clusters
    assert again.area == curve.area


def test_compared_rankings_are_redrawn_by_cluster(left_out_importance) -> None:
    rng = np.random.default_rng(5)
    players = len(left_out_importance.players)
    a, b = (rng.normal(size=(players, 5)) for _ in range(2))
    shared = tuple(str(i // 2) for i in range(10))

    def pair(values, labels):
        each = [replace(left_out_importance, per_prompt=x, clusters=labels) for x in values]
        return compare_importances(dict(zip("ab", each, strict=True)), n_boot=200)

    twice = pair([np.repeat(x, 2, axis=1) for x in (a, b)], shared)
    once = pair([a, b], None)
    np.testing.assert_allclose(twice.spearman_interval, once.spearman_interval)
    assert np.isnan(pair([a, b], ("one",) * 5).spearman_interval).all()


def test_a_task_file_labels_its_clusters(gpt2_probe, tmp_path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [{"prompt": [5, 6, 7, i], "answer": 3, "cluster": i % 2} for i in range(4)]
    path.write_text("\n".join(map(json.dumps, rows)))
    made = make_task(gpt2_probe, str(path))
    assert made.clusters == ("0", "1", "0", "1")
    assert set(leave_one_out(gpt2_probe, made, null="none").to_pandas()["clusters"]) == {2}
    del rows[2]["cluster"]
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(Exception, match="line 3 has no 'cluster'"):
        make_task(gpt2_probe, str(path))


def test_a_disruption_draws_periods(gpt2_probe) -> None:
    rng = np.random.default_rng(0)
    clean, largest, smallest = rng.integers(-64, 64, size=(3, 8)) / 16
    labels = tuple(str(i // 2) for i in range(16))
    each = [np.repeat(x, 2) for x in (clean, largest, smallest)]
    about = {"task": "loss", "unit": "nats", "parts": "q", "fill": "mean"}
    twice = disruption_row(about, each[0], each[1], each[2], labels, {})
    once = disruption_row(about, clean, largest, smallest, None, {})
    np.testing.assert_array_equal(twice.bounds(), once.bounds())
    assert twice.to_pandas()["clusters"].tolist() == [8]
    made = disruption(gpt2_probe, repeats_task(gpt2_probe, n=3, max_length=3))
    assert made.clusters is not None
