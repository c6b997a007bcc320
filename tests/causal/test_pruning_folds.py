"""Rankings that are judged on prompts they were not made on."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
import zoo
from scipy import stats

import interp
from interp.causal import PruningCurve, leave_one_out, pruning_curve, repeats_task
from interp.causal.pruning.folds import fold_orders, folds, loop_areas
from interp.core.documents import seal
from interp.core.errors import OptionError, StoreError
from interp.model.locate.probe import probe
from interp.planted import build

HEADS = ["L0H1", "L0H4", "L1H2", "L2H0", "L2H5"]


@cache
def tiny():
    model = probe(zoo.FAMILIES["gpt2"].build("sdpa"), "gpt2")
    return model, repeats_task(model, n=3, max_length=6)


@pytest.mark.parametrize("order", ["least-first", "most-first"])
def test_held_out_prompts_are_judged_by_the_order_of_the_other_half(order):
    model = probe(zoo.FAMILIES["gpt2"].build("sdpa"), "gpt2")
    task = repeats_task(model, n=7, max_length=6)
    found = leave_one_out(model, task, heads=HEADS, null="none")
    curve = pruning_curve(model, task, found, order=order, n_random=3, n_loops=3, seed=4)
    assert curve.made["ranked_on"] == "these prompts"
    first = folds(7, 0, 4, task.clusters)[0].first > 0
    assert 0 < first.sum() < 7
    assert curve.held_out_per_prompt is not None
    for rank_on, judge_on in ((first, ~first), (~first, first)):
        helps = found.per_prompt[:, rank_on].mean(1)
        labels = [found.players.labels[i] for i in np.argsort(-helps, kind="stable")]
        want = pruning_curve(model, task, labels, order=order, heads=HEADS, n_random=0)
        np.testing.assert_allclose(
            curve.held_out_per_prompt[:, judge_on], want.per_prompt[:, judge_on], atol=1e-5
        )
    assert len(curve.loops) == 3
    assert curve.held_out_area is not None
    area = curve.held_out_area
    n = len(set(task.clusters))
    assert 3 <= n < 7  # periods: a half has all prompts of a period, or none
    spread = np.std(curve.loops, ddof=1) * np.sqrt(n / (n - 1)) * stats.t.isf(0.025, 2)
    assert area.high - area.value == pytest.approx(spread)
    assert "on held-out prompts" in curve.summary
    assert "on those it was ranked on" in curve.summary
    # the same rank from a table cannot be halved, and says which prompts it was made on
    plain = pruning_curve(model, task, found.table, heads=HEADS, n_random=3)
    assert plain.held_out_area is None
    assert "which is biased in its favour" in plain.summary
    other = repeats_task(model, n=7, max_length=6, seed=1)
    apart = pruning_curve(model, other, found, n_random=3)
    assert apart.held_out_area is None
    assert apart.made["ranked_on"] == "other prompts"
    assert "on prompts it was not ranked on" in apart.summary
    given = pruning_curve(model, task, HEADS, heads=HEADS, n_random=3)
    assert given.made["ranked_on"] == "unknown"
    with pytest.raises(OptionError, match="no held-out values"):
        given.n_free(1.0, held_out=True)
    with pytest.raises(OptionError, match="at least 2 loops"):
        pruning_curve(model, task, found, n_loops=1)


def test_a_loop_splits_ranks_and_judges_anew():
    every = folds(5, 6, 0)
    assert len(every) == 7
    np.testing.assert_array_equal(every[0].first + every[0].second, 1)
    for fold in every[1:]:
        assert (fold.first + fold.second).sum() == 5
        assert not (fold.first * fold.second).any()  # a prompt drawn twice is in one half
    assert folds(1, 6, 0) == []
    rank = lambda weight: [int(np.argmax(weight)), 9]  # noqa: E731
    assert fold_orders(every[:2], rank) == [
        rank(half) for f in every[:2] for half in (f.first, f.second)
    ]
    own = np.zeros((4, 2, 5))
    own[:, 1] = np.arange(4)[:, None]  # what order k leaves at the last count
    random = np.zeros((3, 2, 5))
    found = loop_areas(every[:2], own, random, np.array([0.0, 1.0]), 0)
    for k, area in enumerate(found):
        fold = every[k]
        judged_by_second, judged_by_first = fold.first.sum() / 5, fold.second.sum() / 5
        want = judged_by_second * (2 * k + 1) / 2 + judged_by_first * 2 * k / 2
        assert area == pytest.approx(want)


def test_a_ranking_made_of_noise_is_good_on_its_own_prompts_only():
    """No head matters in a random model: what its ranking seems to gain is its own noise."""
    model = probe(zoo.FAMILIES["gpt2"].build("sdpa"), "gpt2")
    same, apart = [], []
    for seed in range(6):
        task = repeats_task(model, n=4, max_length=6, seed=seed)
        found = leave_one_out(model, task, null="none")
        curve = pruning_curve(model, task, found, n_random=8, n_loops=0, seed=seed, steps=9)
        same.append(curve.area.value)
        assert curve.held_out_area is not None
        apart.append(curve.held_out_area.value)
    assert np.mean(np.array(same) - apart) > 2 * np.std(np.array(same) - apart) / np.sqrt(6)


def test_greedy_is_judged_by_halves_too():
    model, task = tiny()
    curve = pruning_curve(model, task, how="greedy", heads=HEADS, n_random=2)
    assert curve.held_out_per_prompt is not None
    assert curve.held_out_per_prompt.shape == curve.per_prompt.shape
    assert (curve.held_out_per_prompt.mean(1) >= curve.value - 1e-6).mean() > 0.5  # of a loss
    assert curve.loops == ()


def test_curves_are_read_back_and_other_formats_refused(tmp_path):
    model, task = tiny()
    found = leave_one_out(model, task, null="none")
    curve = pruning_curve(model, task, found, n_random=3, n_loops=2)
    curve.save(tmp_path)
    again = PruningCurve.read(tmp_path)
    assert again.held_out_area == curve.held_out_area
    assert again.loops == curve.loops
    assert "held-out prompts" in str([t.name for t in curve.plot().data])
    other = json.loads((tmp_path / "pruning.json").read_text())
    other["format"] = "interp PruningCurve 1"
    (tmp_path / "pruning.json").write_text(json.dumps(other))
    with pytest.raises(StoreError, match="changed after it was written"):
        PruningCurve.read(tmp_path)
    (tmp_path / "pruning.json").write_text(json.dumps(seal(other)))
    with pytest.raises(StoreError, match="its 'format' is not 'interp PruningCurve 2'"):
        PruningCurve.read(tmp_path)


@pytest.mark.slow
def test_many_heads_are_measured_at_fewer_counts_for_random_orders(tmp_path):
    """The mean over the curve hardly changes, and no count has a value that was not measured."""
    model = interp.load(build("induction", heads=24, layers=2).model, name="many")
    task = repeats_task(model, n=4, max_length=8)
    found = leave_one_out(model, task)
    curve = pruning_curve(model, task, found, n_random=2, n_loops=2)
    assert len(curve.counts) == 25
    assert curve.measured_at_random.tolist() == [0, 8, 16, 24, 32, 40, 48]
    assert curve.random_per_prompt.shape == (2, 7, 4)
    frame = curve.wide()
    assert frame.loc[frame["random_mean"].notna(), "n_removed"].tolist() == (
        curve.measured_at_random.tolist()
    )
    every = pruning_curve(model, task, found, n_random=2, n_loops=0, steps=48)
    assert every.random_counts is None
    spread = every.random.std()
    assert abs(curve.area.value - every.area.value) < 0.1 * spread
    curve.save(tmp_path)
    again = PruningCurve.read(tmp_path)
    assert again.measured_at_random.tolist() == curve.measured_at_random.tolist()
    assert again.area == curve.area
    some = curve._take([0, 1, 24])
    assert some.random.shape == (2, 2)
    [band] = [x for x in curve.plot().data if x.name == "random orders, mean"]
    assert len(band.x) == 7  # type: ignore[attr-defined]
