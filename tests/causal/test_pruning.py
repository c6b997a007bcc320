"""Pruning curves where the right one is known: planted heads, brute force, numbers by hand."""

from __future__ import annotations

import json
import math
from functools import cache

import numpy as np
import pytest
import torch
import zoo
from scipy import stats

from interp.causal import (
    PruningCurve,
    accuracy,
    leave_one_out,
    pruning_curve,
    repeats_task,
    search_curves,
)
from interp.causal.game.game import Game
from interp.causal.gradient import gradient_scores
from interp.causal.pruning.prune import estimate_pruning
from interp.causal.pruning.search import pair_order
from interp.core.errors import OptionError, StoreError, UnknownName
from interp.core.head import Head
from interp.core.table import HeadTable
from interp.model import edits
from interp.model.locate.probe import probe
from interp.planted import build
from interp.report.pruning_page import plot_curves

HEADS = ["L0H1", "L0H4", "L1H2", "L2H0", "L2H5"]


@cache
def planted():
    """A planted model, its task, and its heads with the two that work first."""
    p = build("bystander")
    model = probe(p.model, "planted:bystander")
    working = [str(Head(*p.roles[role][0])) for role in ("induction", "previous_token")]
    rest = [str(h) for h in model.heads() if str(h) not in working]
    return model, repeats_task(model, n=6, max_length=12), working, rest


@cache
def tiny():
    model = probe(zoo.FAMILIES["gpt2"].build("sdpa"), "gpt2")
    return model, repeats_task(model, n=3, max_length=6)


def by_hand(own, random, *, order="least-first", higher_is_better=True, counts=None, seed=0):
    own, random = np.array(own, dtype=float), np.array(random, dtype=float)
    counts = np.arange(len(own)) if counts is None else np.array(counts)
    removed = tuple(f"L0H{i}" for i in range(int(counts[-1])))
    n = int(counts[-1])
    return PruningCurve(
        "mine", counts, removed, own, random, n, order, "1", higher_is_better, seed, {}
    )


def full_forward(model, task, out):
    """The task by an edit and one full forward."""
    with torch.no_grad():
        logits = model.run(task.prompts, [edits.zero(out)] if out else [])
    game = Game(model, task, reuse=False)
    return task.values(game.batches[0].wanted.of(logits), range(len(task))).numpy()


def test_the_task_stays_until_the_working_heads_go_and_random_orders_lose_it_before():
    model, task, working, rest = planted()
    curve = pruning_curve(model, task, working + rest)
    assert curve.removed[-2:] == tuple(working[::-1])
    assert curve.removed[:6] == tuple(rest[::-1])
    assert abs(curve.value[:7] - curve.clean).max() < 1e-3
    assert curve.value[7] > curve.clean + 1
    assert curve.n_free(0.01) == 6
    assert curve.random.mean(0)[3] > curve.clean + 1
    assert curve.band()[6, 0] > curve.value[6]
    low, high = curve.area[1:]
    assert 1 < low < curve.area.value < high
    frame = curve.to_pandas()
    assert (frame["low"] <= frame["value"]).all()
    assert (frame["value"] <= frame["high"]).all()
    np.testing.assert_array_equal(frame["last_removed"], ["", *curve.removed])


def test_a_ranking_without_knowledge_is_as_good_as_random_orders():
    model, task, _, _ = planted()
    areas = []
    for seed in range(5):
        order = np.random.default_rng(100 + seed).permutation(8)
        labels = [str(model.heads()[i]) for i in order]
        areas.append(pruning_curve(model, task, labels, seed=seed, n_random=8).area.value)
    true = pruning_curve(model, task, planted()[2] + planted()[3], n_random=8).area.value
    assert abs(np.mean(areas)) < 0.4 * true


def test_the_most_important_first_breaks_the_task_at_once():
    model, task, working, rest = planted()
    curve = pruning_curve(model, task, working + rest, order="most-first")
    assert curve.removed == tuple(working + rest)
    assert curve.value[1] > curve.clean + 1
    assert curve.n_free(0.01) == 0
    assert curve.area.value > 0.3
    wrong = pruning_curve(model, task, rest + working, order="most-first")
    assert wrong.area.value < -0.3
    np.testing.assert_array_equal(wrong.random, curve.random)


def test_every_value_is_that_of_a_full_forward():
    model, task = tiny()
    curve = pruning_curve(model, task, HEADS, heads=HEADS, n_random=3)
    single = [full_forward(model, task, [h]) for h in HEADS]
    for count in range(6):
        out = list(curve.removed[:count])
        want = full_forward(model, task, out)
        np.testing.assert_allclose(curve.per_prompt[count], want, atol=1e-5)
    for draw in curve.random_per_prompt:
        np.testing.assert_allclose(draw[0], curve.per_prompt[0], atol=1e-12)
        np.testing.assert_allclose(draw[5], curve.per_prompt[5], atol=1e-12)
        assert min(np.abs(draw[1] - x).max() for x in single) < 1e-5
    assert len({tuple(draw[1]) for draw in curve.random_per_prompt}) > 1


@pytest.mark.parametrize("order", ["least-first", "most-first"])
def test_greedy_equals_a_brute_force_loop(order):
    model, task = tiny()
    curve = pruning_curve(model, task, how="greedy", order=order, heads=HEADS, n_random=2)
    left, out, path = list(HEADS), [], [full_forward(model, task, [])]
    while left:
        values = {h: full_forward(model, task, [*out, h]) for h in left}
        pick = min if order == "least-first" else max  # of a loss
        best = pick(left, key=lambda h: values[h].mean())
        path.append(values[best])
        out.append(best)
        left.remove(best)
    assert curve.removed == tuple(out)
    np.testing.assert_allclose(curve.per_prompt, path, atol=1e-5)
    assert curve.random_per_prompt.shape == (2, 6, 3)
    one_shot = leave_one_out(model, task, heads=HEADS, null="none").helps()
    fixed = [HEADS[i] for i in np.argsort(one_shot if order == "least-first" else -one_shot)]
    assert curve.removed[0] == fixed[0]


def test_an_importance_its_table_and_its_list_rank_alike():
    model, task, working, _ = planted()
    found = leave_one_out(model, task, null="none")
    order = np.argsort(-found.helps(), kind="stable")
    curves = [
        pruning_curve(model, task, ranking, n_random=0)
        for ranking in (found, found.table, [found.players.labels[i] for i in order])
    ]
    assert set(curves[0].removed[-2:]) == set(working)
    assert curves[0].removed == curves[1].removed
    assert set(curves[2].removed[-2:]) == set(working)
    assert curves[0].name == "ablation:kind=zero,task=second_copy_loss"
    scores = gradient_scores(model, task, null="none")["token_abs"]
    of_table = pruning_curve(model, task, scores.table, n_random=0, steps=[3])
    assert of_table.removed == pruning_curve(model, task, scores, n_random=0, steps=[3]).removed
    pattern = HeadTable.from_scores(
        model=model.name, metric="induction", score=[[0, 0, 0, 0.2], [0.9, 0, 0, 0]], provenance={}
    )
    assert pruning_curve(model, task, pattern, n_random=0).removed[-2:] == ("L0H3", "L1H0")


def test_groups_and_chosen_heads_play_as_they_were_ranked():
    model = probe(zoo.FAMILIES["llama"].build("sdpa"), "llama")
    task = repeats_task(model, n=2, max_length=6)
    groups = leave_one_out(model, task, players="kv_groups", null="none")
    curve = pruning_curve(model, task, groups, n_random=2)
    assert sorted(curve.removed) == sorted(groups.players.labels)
    few = leave_one_out(model, task, heads=["L0H1", "L2H3", "L1H0"], null="none")
    assert set(pruning_curve(model, task, few, n_random=0).removed) == {"L0H1", "L2H3", "L1H0"}
    out = pruning_curve(model, task, few, n_random=0, heads=few.players.labels, without=["L0H0"])
    whole = Game(model, task)
    gates = torch.ones(1, 18)
    gates[0, 0] = 0
    np.testing.assert_allclose(out.per_prompt[0], whole.values(gates)[0], atol=1e-6)


def test_steps_choose_the_counts_and_greedy_stops_after_the_last():
    model, task = tiny()
    every = pruning_curve(model, task, HEADS, heads=HEADS, n_random=2)
    some = pruning_curve(model, task, HEADS, heads=HEADS, n_random=2, steps=[4, 1])
    np.testing.assert_array_equal(some.counts, [0, 1, 4])
    np.testing.assert_allclose(some.per_prompt, every.per_prompt[[0, 1, 4]], atol=1e-6)
    np.testing.assert_allclose(
        some.random_per_prompt, every.random_per_prompt[:, [0, 1, 4]], atol=1e-6
    )
    halves = pruning_curve(model, task, HEADS, heads=HEADS, n_random=0, steps=2)
    np.testing.assert_array_equal(halves.counts, [0, 2, 5])
    told = []
    greedy = pruning_curve(
        model,
        task,
        how="greedy",
        heads=HEADS,
        n_random=2,
        steps=[2],
        progress=lambda *x: told.append(x),
    )
    assert len(greedy.removed) == 2
    # 5 and 4 single removals for all prompts and for either half; the clean run, two random sets
    assert greedy.made["evaluations"] == told[-1][1] == told[-1][2] == 3 * 9 + 3
    assert [x[1] for x in told] == sorted(x[1] for x in told)
    whole = pruning_curve(model, task, how="greedy", heads=HEADS, n_random=0, held_out=False)
    assert whole.made["evaluations"] == 15


def test_the_estimate_counts_what_is_run():
    model, task = tiny()
    one_shot = estimate_pruning(model, task, HEADS, heads=HEADS, n_random=3)
    ran = pruning_curve(model, task, HEADS, heads=HEADS, n_random=3)
    assert one_shot.coalitions == ran.made["evaluations"]
    once = estimate_pruning(model, task, how="greedy", n_random=0, held_out=False)
    assert once.coalitions == 18 * 19 / 2
    assert estimate_pruning(model, task, how="greedy", n_random=0).coalitions == 3 * 18 * 19 / 2
    found = leave_one_out(model, task, heads=HEADS, null="none")
    halves = estimate_pruning(model, task, found, n_random=3, n_loops=4)
    ran = pruning_curve(model, task, found, n_random=3, n_loops=4)
    assert halves.coalitions == ran.made["evaluations"] > one_shot.coalitions
    with pytest.raises(OptionError, match=r"takes 513 evaluations, more than max_evaluations=100"):
        pruning_curve(model, task, how="greedy", n_random=0, max_evaluations=100)


def test_area_and_free_heads_by_hand():
    own = [[1.0, 1.0], [0.9, 0.7], [0.5, 0.5], [0.9, 0.9], [0.0, 0.0]]
    random = [[[1.0, 1.0], [0.5, 0.5], [0.4, 0.4], [0.1, 0.1], [0.0, 0.0]]] * 2
    curve = by_hand(own, random)
    # trapezoids of width 1/4 over 1, .8, .5, .9, 0 and 1, .5, .4, .1, 0
    assert curve.area.value == pytest.approx((0.9 + 0.65 + 0.7 + 0.45) / 4 - (2 * 1 + 1) / 8)
    assert curve.n_free(0.0) == 0
    assert curve.n_free(0.21) == 1  # the recovery at three does not count
    assert curve.n_free(0.5) == 3
    assert curve.n_free(1.0) == 4
    assert by_hand(own, random, order="most-first").area.value == -curve.area.value
    loss = by_hand(own, random, higher_is_better=False)
    assert loss.area.value == -curve.area.value
    assert loss.n_free(0.0) == 4
    part = by_hand(own[:3], np.array(random)[:, :3], counts=[0, 2, 8])
    assert part.area.value == pytest.approx(
        ((0.9 - 0.75) * 2 + (0.65 - 0.45) * 6) / 8
    )  # unequal steps
    half = stats.t.isf(0.025, 1) * np.std([0.9, 0.7], ddof=1) / np.sqrt(2)
    np.testing.assert_allclose(curve.bounds()[1], [0.8 - half, 0.8 + half])
    with pytest.raises(OptionError, match="0 or more"):
        curve.n_free(-1)


def test_the_interval_of_the_area_covers_prompts_and_orders():
    same = by_hand([[1.0] * 4] * 3, [[[0.5] * 4] * 3] * 5)
    assert same.area.low == same.area.high == pytest.approx(0.5)
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(120):
        own = np.ones((2, 1)) + rng.normal(size=(1, 30)) * 0.2
        random = 0.5 + rng.normal(size=(25, 1, 1)) * 0.3 + np.zeros((1, 2, 30))
        low, high = by_hand(own, random, seed=seed).area[1:]
        covered += low <= 0.5 <= high
    assert 0.85 < covered / 120 < 0.99
    prompts_only = by_hand(own, np.full((25, 2, 30), 0.5)).area
    assert prompts_only.high - prompts_only.low < 0.75 * (high - low)
    assert math.isnan(by_hand([[1.0], [0.5]], [[[1.0], [0.2]]] * 2).area.low)


def test_a_curve_is_written_and_read_back(tmp_path):
    model, task, working, rest = planted()
    curve = pruning_curve(model, task, working + rest, n_random=3, name="<true> & known")
    paths = curve.save(tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(p.name for p in paths)
    again = PruningCurve.read(tmp_path / "out")
    assert again.to_pandas().equals(curve.to_pandas())
    np.testing.assert_array_equal(again.random_per_prompt, curve.random_per_prompt)
    assert again.area == curve.area
    assert again.made == json.loads(json.dumps(curve.made))
    assert again.made["task_hash"] == task.hash
    assert again.made["kind"] == "zero"
    assert paths[0].read_text().count("\n") == 10
    html = paths[2].read_text()
    assert "&lt;true&gt; &amp; known" in html
    assert "<true>" not in html
    assert "script-src 'sha256-" in html  # the page's own script, and no other
    assert html.count("<polyline") == 2  # the curve and the mean of random orders
    assert "&lt;true> &amp; known" in curve._repr_html_()
    paths[1].write_text("{}")
    with pytest.raises(StoreError, match="not a pruning curve"):
        PruningCurve.read(paths[1])
    empty = pruning_curve(model, task, working + rest, n_random=0)
    empty.save(tmp_path / "no band")
    assert PruningCurve.read(tmp_path / "no band").random_per_prompt.shape == (0, 9, 6)
    with pytest.raises(OptionError, match="set n_random"):
        _ = empty.area


def test_curves_share_a_figure_with_one_band():
    model, task, working, rest = planted()
    true = pruning_curve(model, task, working + rest, n_random=4, name="true")
    wrong = pruning_curve(model, task, rest + working, n_random=4, name="wrong")
    figure = plot_curves([true, wrong])
    names = [t.name for t in figure.data if t.showlegend is not False]
    assert names == ["random orders, middle 95 %", "random orders, mean", "true", "wrong"]
    line = next(t for t in figure.data if t.name == "wrong" and t.mode == "lines+markers")
    np.testing.assert_array_equal(line.y, wrong.value)
    assert line.line.color != figure.data[3].line.color
    assert figure.layout.shapes[0].y0 == true.clean
    other = pruning_curve(model, repeats_task(model, n=3, max_length=8), rest + working, n_random=0)
    with pytest.raises(OptionError, match="differ in task_hash"):
        plot_curves([true, other])
    with pytest.raises(OptionError, match="no pruning curve"):
        plot_curves([])
    assert len(other.plot().data) == 2


def test_a_task_in_steps_and_one_prompt_have_curves_too():
    model, _, working, rest = planted()
    prompts = repeats_task(model, n=1, max_length=10).prompts
    task = accuracy(model, prompts, list(range(13, 20)))
    curve = pruning_curve(model, task, working + rest, n_random=2)
    assert curve.clean == 1
    assert curve.n_free(0.0) == 6
    assert np.isnan(curve.bounds()).all()
    assert curve.area.value > 0
    assert len(curve.plot().data) == 3


def test_bad_rankings_and_options_are_refused():
    model, task, working, rest = planted()
    every = working + rest
    with pytest.raises(OptionError, match=r"lacks 2 of 8 players \(L0H3, L1H0\)"):
        pruning_curve(model, task, rest)
    with pytest.raises(UnknownName, match=r"unknown player in the ranking 'L7H0'"):
        pruning_curve(model, task, [*every[:-1], "L7H0"])
    with pytest.raises(OptionError, match=r"names L1H0 twice"):
        pruning_curve(model, task, ["L1H0", *every])
    with pytest.raises(OptionError, match="needs a ranking"):
        pruning_curve(model, task)
    with pytest.raises(OptionError, match="makes its own ranking"):
        pruning_curve(model, task, every, how="greedy")
    with pytest.raises(OptionError, match=r"lacks 7 of 8 players \(L0H1, .*; rank them all"):
        pruning_curve(model, task, "L0H0")
    with pytest.raises(OptionError, match="L0H0 is the only player"):
        pruning_curve(model, task, ["L0H0"], heads=["L0H0"])
    with pytest.raises(OptionError, match="steps do not remove any player"):
        pruning_curve(model, task, every, steps=[0])
    with pytest.raises(OptionError, match="steps contain 9; counts must lie between 0 and 8"):
        pruning_curve(model, task, every, steps=[9])
    with pytest.raises(OptionError, match="steps=0"):
        pruning_curve(model, task, every, steps=0)
    with pytest.raises(OptionError, match="n_random=1"):
        pruning_curve(model, task, every, n_random=1)
    with pytest.raises(UnknownName, match="value of how 'lazy'; known: greedy, one-shot"):
        pruning_curve(model, task, every, how="lazy")
    with pytest.raises(
        UnknownName, match="value of order 'best-first'; did you mean least-first or most-first"
    ):
        pruning_curve(model, task, every, order="best-first")
    other = leave_one_out(*tiny(), null="none")
    with pytest.raises(OptionError, match="the ranking is of another model, gpt2"):
        pruning_curve(model, task, other)
    blank = HeadTable.from_scores(
        model="x",
        metric="m",
        score=[[math.nan] * 4, [1.0] * 4],
        n=[[0] * 4, [1] * 4],
        provenance={},
    )
    with pytest.raises(OptionError, match=r"m has no score for L0H0, L0H1, L0H2, L0H3"):
        pruning_curve(model, task, blank)


def test_searches_find_the_heads_that_can_go_and_are_judged_on_other_prompts():
    model, task, _, rest = planted()
    curves = search_curves(model, task, ["ablation", "greedy", "pairs"], n_random=5, n_restarts=1)
    for curve in curves:
        assert set(curve.removed[:6]) == set(rest), curve.name
        assert curve.per_prompt.shape[1] == 3
        assert abs(curve.value[:7] - curve.clean).max() < 1e-3
    assert len(plot_curves(curves).data) > 3
    with pytest.raises(OptionError, match="nothing is held out"):
        search_curves(model, repeats_task(model, n=1, max_length=8), ["ablation"])


def test_a_second_order_order_spares_the_last_of_a_redundant_pair():
    alone = np.array([-1.0, -0.1, -0.1])  # the second and third stand in for each other
    both = np.array([[0, 0, 0], [0, 0, -5.0], [0, -5.0, 0]])
    assert pair_order(alone, both) == [1, 0, 2]
    assert pair_order(alone, 0 * both) == [1, 2, 0]
