"""Agreement of importances: known orders against scipy, joint bootstraps, and what is refused."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import zoo
from scipy import stats

import interp.causal
from interp.causal import (
    aumann_shapley,
    compare_importances,
    leave_one_out,
    patching_gradient,
    repeats_task,
)
from interp.causal.comparison.questions import METHODS, QUESTIONS, method_of
from interp.causal.game.game import Game
from interp.causal.gradient import gradient_scores
from interp.causal.importance import make_importance
from interp.core.errors import OptionError, UnknownName
from interp.core.prompts import Prompts
from interp.core.table import HeadTable
from interp.model.locate.probe import probe


@cache
def model():
    return probe(zoo.FAMILIES["gpt2"].build("sdpa"), "gpt2")


@cache
def game(seed=0, n=8):
    task = repeats_task(model(), n=n, max_length=4, seed=seed)
    alone = replace(task.prompts, clusters=None)  # every prompt a cluster; see test_clusters.py
    return Game(model(), replace(task, prompts=alone))


def importance(per_prompt, name="ablation", *, of="removal", own_game=None, **more):
    """An importance of 18 heads with these values; the task is a loss, so removal = harm."""
    options = {"method": name, "options": {}, "of": of, "made_by": "a test"} | more
    return make_importance(own_game or game(), np.asarray(per_prompt, dtype=float), **options)


def constant(values):
    """The same score on each of eight prompts."""
    return np.repeat(np.asarray(values, dtype=float)[:, None], 8, axis=1)


def table(scores, metric="induction", name="gpt2"):
    return HeadTable.from_scores(
        model=name, metric=metric, score=np.reshape(scores, (3, 6)), provenance={}
    )


def test_known_orders_agree_as_they_should():
    up = np.arange(18.0)
    swapped = up.copy()
    swapped[[0, 17]] = swapped[[17, 0]]
    found = compare_importances(
        {
            "up": importance(constant(up)),
            "down": importance(constant(-up)),
            "swapped": importance(constant(swapped)),
            "cubed": importance(constant(up**3)),
        },
        ks=[1, 3, 18],
    )
    pairs = found.pairs().set_index(["a", "b"])
    assert pairs.loc[("up", "down"), "spearman"] == -1
    assert pairs.loc[("up", "down"), "kendall"] == -1
    assert pairs.loc[("up", "cubed"), "spearman"] == pytest.approx(1)
    want = stats.spearmanr(up, swapped).statistic
    assert pairs.loc[("up", "swapped"), "spearman"] == pytest.approx(want)
    assert pairs.loc[("up", "swapped"), "kendall"] == pytest.approx(
        stats.kendalltau(up, swapped).statistic
    )
    assert pairs.loc[("up", "swapped"), "top1"] == 0
    assert pairs.loc[("up", "swapped"), "top3"] == pytest.approx(2 / 3)
    assert pairs.loc[("up", "down"), "top18"] == 1
    assert pairs.loc[("up", "down"), "top3_chance"] == pytest.approx(3 / 18)
    ranks = found.ranks().set_index("player")
    assert ranks.loc["L2H5", "up rank"] == 1
    assert ranks.loc["L2H5", "down rank"] == 18
    assert found.overlap("up", "down", 9) == 0


def test_rankings_go_by_what_helps_whatever_the_sign_of_the_score():
    up = np.arange(18.0)
    harm = importance(constant(up))  # a loss that rises without the head
    part = importance(constant(-up), "aumann_shapley", of="presence")
    size = importance(constant(up), "michel_token_abs", of="presence", magnitude=True)
    tables = {"d": harm.table, "e": size.table, "f": part.table}
    found = compare_importances({"a": harm, "b": part, "c": size} | tables)
    np.testing.assert_allclose(found.spearman, 1)
    assert found.players[0] == "L0H0"
    few = compare_importances([harm, table(up[::-1])])
    assert few.spearman[0, 1] == pytest.approx(-1)
    assert few.names == ("ablation:kind=zero,task=second_copy_loss", "induction")


def test_players_are_matched_by_name():
    up = np.arange(18.0)
    other = Game(model(), game().task, players={**{str(h): [h] for h in reversed(model().heads())}})
    turned = importance(constant(up[::-1]), "banzhaf", own_game=other)
    assert compare_importances([importance(constant(up)), turned]).spearman[0, 1] == pytest.approx(
        1
    )


def test_random_importances_agree_by_chance():
    rng = np.random.default_rng(1)
    rho, overlaps = [], []
    for _ in range(60):
        a, b = (table(rng.normal(size=18), name) for name in ("a", "b"))
        row = compare_importances([a, b], ks=[4], n_boot=0).pairs().iloc[0]
        rho.append(row["spearman"])
        overlaps.append(row["top4"])
    assert abs(np.mean(rho)) < 3 / np.sqrt(60 * 17)
    assert np.mean(overlaps) == pytest.approx(4 / 18, abs=0.08)


def test_prompts_are_drawn_together():
    rng = np.random.default_rng(0)
    noisy = rng.normal(size=(18, 8)) + np.arange(18)[:, None] / 9
    alike = importance(noisy, "banzhaf")  # the same numbers on the same prompts
    found = compare_importances(
        {"a": importance(noisy), "b": alike, "c": importance(2 * noisy[:, ::-1])}
    )
    np.testing.assert_allclose(found.spearman_interval[0, 1], 1)
    np.testing.assert_allclose(found.kendall_interval[0, 1], 1)
    low, high = found.spearman_interval[0, 2]
    assert low < 0.9 < high <= 1
    part = importance(-noisy, "aumann_shapley", of="presence")  # the other sign
    turned = compare_importances({"a": importance(noisy), "b": part}, n_boot=100)
    np.testing.assert_allclose(turned.spearman_interval[0, 1], 1)
    on_others = importance(noisy, own_game=game(seed=1))
    apart = compare_importances({"a": importance(noisy), "b": on_others}, allow_tasks=True)
    assert apart.spearman[0, 1] == pytest.approx(1)
    assert apart.spearman_interval[0, 1, 0] < 0.9


def test_intervals_equal_a_loop_over_scipy():
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=(18, 8)) for _ in range(2))
    found = compare_importances({"a": importance(a), "b": importance(b)}, n_boot=2000)
    draws = rng.integers(8, size=(500, 8))
    for name, measure in (("spearman", stats.spearmanr), ("kendall", stats.kendalltau)):
        # the task is a loss, so both signs turn: the correlation stays
        loop = [measure(a[:, d].mean(1), b[:, d].mean(1)).statistic for d in draws]
        interval = getattr(found, f"{name}_interval")[0, 1]
        np.testing.assert_allclose(interval, np.quantile(loop, [0.025, 0.975]), atol=0.06)


def test_sizes_are_redrawn_as_sizes():
    rng = np.random.default_rng(4)
    mixed = rng.normal(size=(18, 8))
    mixed *= np.sign(mixed.mean(1, keepdims=True))  # as batch_abs keeps them
    size = importance(mixed, "michel_batch_abs", of="presence", magnitude=True)
    up = np.arange(18.0)
    found = compare_importances({"size": size, "up": table(up)}, n_boot=2000)
    draws = rng.integers(8, size=(500, 8))
    loop = [stats.spearmanr(np.abs(mixed[:, d].mean(1)), up).statistic for d in draws]
    want = np.quantile(loop, [0.025, 0.975])
    np.testing.assert_allclose(found.spearman_interval[0, 1], want, atol=0.05)


def test_without_prompts_there_is_no_interval():
    rng = np.random.default_rng(0)
    found = compare_importances([table(rng.normal(size=18), m) for m in ("a", "b")])
    assert np.isnan(found.spearman_interval).all()
    assert np.isfinite(found.spearman).all()
    one = game(n=1)
    pair = [importance(rng.normal(size=(18, 1)), m, own_game=one) for m in ("shapley", "banzhaf")]
    assert np.isnan(compare_importances(pair).spearman_interval).all()
    both = [importance(rng.normal(size=(18, 8)), m) for m in ("shapley", "banzhaf")]
    assert np.isnan(compare_importances(both, n_boot=0).spearman_interval).all()
    assert np.isfinite(compare_importances(both, n_boot=50).spearman_interval[0, 1]).all()


def test_constant_importances_correlate_with_nobody():
    flat, up = importance(constant(np.zeros(18)), "banzhaf"), importance(constant(np.arange(18.0)))
    found = compare_importances({"flat": flat, "up": up})
    (row,) = found.pairs().to_dict("records")
    for column in ("spearman", "kendall", "spearman_low", "kendall_high", "top1", "top1_p"):
        assert np.isnan(row[column]), column
    assert row["reason"] == "flat is constant and ranks no player"
    assert "flat is constant" in repr(found)
    assert found.constant == ("flat",)
    json.dumps(found.plot().to_dict(), default=str)


def test_what_cannot_be_compared_is_refused():
    up = np.arange(18.0)
    mine = importance(constant(up))
    with pytest.raises(OptionError, match="1 importances; a comparison needs at least two"):
        compare_importances([mine])
    with pytest.raises(OptionError, match="two importances have the name ablation"):
        compare_importances([mine, mine])
    llama = probe(zoo.FAMILIES["llama"].build("sdpa"), "llama")
    other = Game(llama, repeats_task(llama, n=8, max_length=4))
    with pytest.raises(OptionError, match=r"a and b are of different models \(gpt2, llama\)"):
        compare_importances({"a": mine, "b": importance(constant(up), own_game=other)})
    with pytest.raises(OptionError, match="different models"):
        compare_importances([table(up), table(up, "previous_token", name="bert")])
    elsewhere = importance(constant(up), own_game=game(seed=1))
    with pytest.raises(OptionError, match="on different prompts of one task"):
        compare_importances({"a": mine, "b": elsewhere})
    assert compare_importances({"a": mine, "b": elsewhere}, allow_tasks=True).spearman[0, 1] == 1
    few = Game(model(), game().task, heads=["L0H0", "L0H1"])
    small = importance(constant(up[:2]), own_game=few)
    with pytest.raises(OptionError, match=r"different players: 18 and 2 of them, L0H2, L0H3"):
        compare_importances({"a": mine, "b": small})
    two = HeadTable.concat([table(up), table(up, "previous_token")])
    with pytest.raises(OptionError, match="2 metrics; name one: induction, previous_token"):
        compare_importances([mine, two])
    with pytest.raises(
        OptionError,
        match=r"an Importance or a HeadTable\), and a list of 2 "
        r"\(Importance, ndarray\) was given; .*interp\.causal\.\w+ return one$",
    ):
        compare_importances([mine, up])
    with pytest.raises(OptionError, match=r"ks=\[0, 19\]"):
        compare_importances([mine, table(up)], ks=[0, 19])


def test_names_drop_the_options_that_all_share():
    task = repeats_task(model(), n=4, max_length=4)
    found = compare_importances(
        [
            leave_one_out(model(), task, null="none"),
            leave_one_out(model(), task, null="none", kind="mean-batch"),
            aumann_shapley(model(), task, null="none", steps=2),
        ]
    )
    assert found.names == (
        "ablation:kind=zero",
        "ablation:kind=mean-batch",
        "aumann_shapley:kind=zero,steps=2",
    )
    assert found.ks == (1, 2, 4, 8)
    lines = repr(found).splitlines()
    assert len(lines) == 4
    assert "top 4" in lines[1]


def test_every_method_says_which_question_it_answers():
    """Every public function that gives an importance is in the table, under its label."""
    calls = " ".join(m.call for m in METHODS.values())
    functions = {
        name: f
        for name in interp.causal.__all__
        if callable(f := getattr(interp.causal, name)) and inspect.isfunction(f)
    }
    scored = [n for n, f in functions.items() if f.__annotations__.get("return") == "Importance"]
    assert {"leave_one_out", "all_but_one", "michel", "aumann_shapley"} <= set(scored)
    for name in {*scored} - {"shapley_of"}:  # of a game; as a method of heads it is `shapley`
        assert f"{name}(" in calls, name
    task = repeats_task(model(), n=2, max_length=4)
    made = [leave_one_out(model(), task, null="none")]
    made += gradient_scores(model(), task, null="none").values()
    clean = Prompts(((5, 6, 7), (8, 9, 10)))
    corrupted = interp.causal.loss(model(), clean).with_corrupted(
        [[11, 6, 7], [12, 9, 10]], model()
    )
    made.append(patching_gradient(model(), corrupted, null="none"))
    assert method_of(made[-1].metric) == "patching_gradient"
    for found in made:
        assert method_of(found.metric) in QUESTIONS, found.metric
        assert METHODS[method_of(found.metric)].signed != found.magnitude
    assert len(set(QUESTIONS.values())) == len(QUESTIONS)
    assert all("?" in asks for asks in QUESTIONS.values())


def test_a_comparison_is_written_and_shown(tmp_path):
    rng = np.random.default_rng(0)
    given = {
        "<one> & other": importance(rng.normal(size=(18, 8))),
        "two": importance(rng.normal(size=(18, 8)), "banzhaf"),
        "three": table(rng.normal(size=18)),
    }
    found = compare_importances(given, n_boot=50)
    paths = found.save(tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(p.name for p in paths)
    told = json.loads(paths[2].read_text())
    assert told["questions"]["two"] == QUESTIONS["banzhaf"]
    assert told["questions"]["three"] == ""
    assert told["scores"]["two"] == found.scores[1].tolist()
    assert told["pairs"][0]["spearman"] == found.spearman[0, 1]
    assert paths[0].read_text().count("\n") == 4
    assert paths[1].read_text().count("\n") == 19
    html = paths[3].read_text()
    assert QUESTIONS["banzhaf"].split("?")[0] in html
    assert "<one>" not in html
    assert "not a causal score" in found._repr_html_()
    figure = found.plot()
    assert len(figure.data) == 9
    points = [t for t in figure.data if t.mode == "markers+text"]
    assert len(points) == 3
    np.testing.assert_array_equal(points[0].x, found.scores[0])
    np.testing.assert_array_equal(points[0].y, found.scores[1])
    best = found.players[int(found.scores[0].argmax())]
    assert best in points[0].text
    ranks = found.plot(by="rank").data[3]
    assert sorted(ranks.x) == list(range(1, 19))
    with pytest.raises(UnknownName, match="axis of a comparison"):
        found.plot(by="size")
