"""Shapley values of heads where the mechanism is known, and what the public calls say."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
import zoo

import interp
from interp.causal import (
    banzhaf,
    custom,
    interactions,
    leave_one_out,
    loss,
    repeats_task,
    shapley,
    truncated_shapley,
)
from interp.causal.game.game import Game
from interp.causal.shapley_values.gradients import solved
from interp.causal.shapley_values.scores import estimate_shapley, shapley_of
from interp.causal.shapley_values.surrogate import Draws
from interp.core.errors import NonFiniteError, OptionError, UnknownName
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.model.locate.probe import probe
from interp.planted import build


@cache
def planted(name: str):
    """A planted model and its task: `[BOS] r r`, the loss on the second copy."""
    p = build(name, layers=3 if name == "backup" else 2)
    model = probe(p.model, f"planted:{name}")
    return p, model, repeats_task(model, n=3, max_length=8)


@cache
def tiny():
    model = probe(zoo.FAMILIES["gpt2"].build("sdpa"), "gpt2")
    return model, repeats_task(model, n=3, max_length=4)


@cache
def backup_heads():
    """The working heads of the backup model and six others, so that all coalitions take seconds."""
    p = planted("backup")[0]
    working = heads_of(p, "previous_token", "induction", "backup")
    every = [str(Head(layer, head)) for layer in range(3) for head in range(4)]
    others = [label for label in every if label not in working][:6]
    return [label for label in every if label in working or label in others]


@cache
def exact_backup():
    return shapley(*planted("backup")[1:], method="exact", heads=backup_heads())


def heads_of(p, *roles):
    return {str(Head(*h)) for role in roles for h in p.roles[role]}


def scores(found):
    return dict(zip(found.players.labels, found.score, strict=True))


def test_the_working_heads_come_first_and_the_bystander_has_nothing():
    p, model, task = planted("bystander")
    found = shapley(model, task, method="exact")
    working = heads_of(p, "previous_token", "induction")
    assert set(found.top(2).players.labels) == working
    each = scores(found)
    for label in set(each) - working:
        assert abs(each[label]) < 0.02 < abs(found.top(2).score[1]) / 25, label
    # neither does anything without the other, so they share
    assert each[found.top(2).players.labels[0]] == pytest.approx(
        each[found.top(2).players.labels[1]], rel=0.02
    )
    assert abs(found.notes["efficiency_gap"]) < 1e-9
    assert found.score.sum() == pytest.approx(found.notes["v_all_minus_v_none"], abs=1e-9)
    assert found.notes["v_all_minus_v_none"] > 1  # of minus the loss: heads lower it
    assert found.of == "presence"
    assert "efficiency_gap=" in repr(found)


def test_the_backup_head_is_found_and_leaving_one_out_does_not_find_it():
    p, model, task = planted("backup")
    (main,), (backup,), (previous,) = (
        heads_of(p, role) for role in ("induction", "backup", "previous_token")
    )
    heads = backup_heads()
    alone = scores(leave_one_out(model, task, null="none", heads=heads))
    assert abs(alone[main]) < 1e-3 > abs(alone[backup])
    exact = exact_backup()
    assert set(exact.top(3).players.labels) == {main, backup, previous}
    assert min(abs(scores(exact)[label]) for label in (main, backup)) > 0.2
    pairs = interactions(
        model, task, among=[main, backup, previous], max_evaluations=160, heads=heads
    )
    frame = pairs.to_pandas().set_index(["first", "second"])
    helps = dict(zip(frame.index, pairs.score, strict=True))
    assert helps[main, backup] < -0.2  # they stand in for each other
    assert helps[main, previous] > 0.2  # they need each other
    assert set(frame["unit"]) == {"nats/token (+ need each other)"}
    (first,) = pairs.top(1)
    assert first["score"] == frame["score"].loc[first["first"], first["second"]]


@pytest.mark.parametrize("method", ["permutations", "surrogate"])
def test_sampled_values_equal_exact_ones_within_their_errors(method):
    _, model, task = planted("backup")
    exact = exact_backup()
    found = shapley(model, task, method=method, max_evaluations=160, seed=1, heads=backup_heads())
    assert abs(found.notes["efficiency_gap"]) < 1e-9
    assert found.evaluations <= 160
    miss = np.abs(found.score - exact.score)
    assert (miss <= 4 * found.sampling_sem + 0.01).all()
    assert np.sqrt((miss**2).mean()) < 3 * np.sqrt((found.sampling_sem**2).mean())
    assert set(found.top(3).players.labels) == set(exact.top(3).players.labels)
    table = found.table.to_pandas()
    np.testing.assert_allclose(table["sem"] ** 2, found.sem**2 + found.sampling_sem**2)
    assert set(table["metric"]) == {
        f"shapley:evaluations={found.evaluations},kind=zero,method={method},task=second_copy_loss"
    }
    (made,) = found.table.provenance.values()
    assert made["made_by"] == "interp.causal.shapley"
    assert made["seed"] == 1
    assert any(note.startswith("sampling_sem=") for note in made["notes"])
    assert found.notes["sampling_sem"] == found.sampling_sem.max()


def test_the_heads_of_a_layer_alone_are_a_game_with_the_others_active():
    model, task = tiny()
    found = shapley(model, task, heads=["L0H0", "L0H1"])
    game = Game(model, task, heads=["L0H0", "L0H1", "L2H3", "L2H4"])
    gates = torch.ones(3, 4)
    for row, out in enumerate([[0], [1], [0, 1]]):
        gates[row, out] = 0
    (a, b, both), clean = game.values(gates), game.clean
    want = ((a - clean) + (both - b)) / 2  # a loss
    np.testing.assert_allclose(found.per_prompt[0], want, atol=1e-5)
    np.testing.assert_allclose(found.per_prompt.sum(0), both - clean, atol=1e-5)


def test_auto_takes_what_the_budget_allows():
    model, task = tiny()
    game = Game(model, task, heads=["L0H0", "L0H1", "L2H3", "L2H4"])
    exact = shapley_of(game)
    assert exact.metric.startswith("shapley:kind=zero,method=exact,")
    few = shapley_of(game, max_evaluations=12)
    assert "method=surrogate" in few.metric
    told = []
    shapley_of(game, method="permutations", max_evaluations=12, progress=lambda *x: told.append(x))
    assert told[-1] == ("second_copy_loss, zero", 12, 12)
    same = banzhaf(model, task, heads=["L0H0", "L0H1"])
    np.testing.assert_allclose(
        same.per_prompt, shapley(model, task, heads=["L0H0", "L0H1"]).per_prompt, atol=1e-6
    )
    cut = truncated_shapley(model, task, heads=["L0H0", "L0H1"], max_evaluations=4)
    assert "not the Shapley value" in cut.notes["bias"]
    assert cut.metric.startswith("truncated_shapley:")


def test_the_null_plays_the_same_game_on_random_weights():
    _, model, task = planted("bystander")
    found = shapley(
        model, task, method="permutations", max_evaluations=14, null="random-init", check=False
    )
    table = found.table.to_pandas()
    assert table["null"].notna().all()
    assert table["null"].abs().max() < 0.2 < table["score"].abs().max()
    with pytest.raises(
        UnknownName, match="unknown value of null 'shuffled'; known: none, random-init"
    ):
        shapley(model, task, null="shuffled")


def test_derivatives_are_right_in_games_whose_gates_are_quadratic():
    """The trapezoid rule has no error there: only the choice of coalitions is left."""
    rng = np.random.default_rng(3)
    n, k = 7, 3
    linear, own = rng.normal(size=(n, k)), rng.normal(size=(n, k))
    pairs = rng.normal(size=(n, n, k))
    pairs = np.triu(pairs.transpose(2, 0, 1), 1).transpose(1, 2, 0)
    both = pairs + pairs.transpose(1, 0, 2)
    exact = linear + own + both.sum(1) / 2  # a gate at 0 or 1 is its own square
    value = lambda g: g @ linear + (g**2) @ own + np.einsum("i,j,ijk->k", g, g, pairs)  # noqa: E731
    found = []
    for seed in range(40):
        gates = Draws(n, seed).pairs(0, 16)
        slopes = np.stack(
            [linear + 2 * g[:, None] * own + np.einsum("j,ijk->ik", g, both) for g in gates]
        )
        solution = solved(gates, slopes, value(np.ones(n)), value(np.zeros(n)))
        assert abs(solution.efficiency_gap) < 1e-9
        miss = np.abs(solution.score - exact.mean(1))
        found.append((miss <= 2.1 * solution.sampling_sem).mean())
    assert np.mean(found) > 0.9  # of the 95 % intervals
    alone = gates[:2]  # one coalition and its complement: each player is at one of both ends
    slopes = np.stack([linear] * 2)
    np.testing.assert_allclose(
        solved(alone, slopes, linear.sum(0), 0 * linear[0]).score, linear.mean(1)
    )


def test_what_the_trapezoid_rule_misses_is_reported():
    """Under zeros these heads are switches, whose derivatives tell little; the errors say so."""
    model = interp.load("bundled:induction")
    task = repeats_task(model, n=4)
    covered, missed = [], []
    for kind in ("zero", "mean-position"):
        heads = [(x, h) for x in (0, 1) for h in range(4)]
        game = Game(model, task, kind=kind, heads=heads)
        exact = shapley_of(game, method="exact").score
        for seed in range(4):
            found = shapley_of(game, method="gradients", max_evaluations=40, seed=seed)
            assert abs(found.notes["efficiency_gap"]) < 1e-9
            assert found.notes["about_forward_passes"] == pytest.approx(108)
            low, high = (found.score + sign * 2.13 * found.sampling_sem for sign in (-1, 1))
            covered.append(((low <= exact) & (exact <= high)).mean())
            missed.append(found.notes["bias_check"].startswith("bias detected: 8 contributions"))
    assert np.mean(covered) > 0.9
    assert sum(missed[:4]) >= 3  # zeros


def test_derivatives_tell_of_all_heads_in_few_passes():
    model = interp.load(zoo.FAMILIES["gpt2"].model("sdpa"))
    prompts = torch.randint(0, 60, (4, 12), generator=torch.Generator().manual_seed(1))
    game = Game(model, loss(model, prompts))
    exact = shapley_of(game, method="surrogate", max_evaluations=1200).score
    found = [shapley_of(game, method="gradients", max_evaluations=n) for n in (20, 120)]
    few, many = (((x.score - exact) ** 2).sum() / (exact**2).sum() for x in found)
    assert few < 0.08
    assert many < 0.02
    target = found[0].sampling_sem.max() / 1.2
    goes_on = shapley_of(game, method="gradients", target_sem=target)
    assert (goes_on.sampling_sem <= target).all()
    assert goes_on.evaluations > 20


def test_estimates_count_the_work():
    model, task = tiny()
    game = Game(model, task)
    permutations = estimate_shapley(game, method="permutations", max_evaluations=70)
    assert permutations.coalitions == 68
    # short prompts share passes, which start where the first of them does
    assert 0.9 < permutations.share <= 1
    alone = Game(model, task, fold=False)
    chained = estimate_shapley(alone, method="permutations", max_evaluations=70)
    assert chained.share == pytest.approx(2 / 3)  # (3 + 2 + 1) / 3 blocks of 3
    half = estimate_shapley(alone, method="permutations", max_evaluations=35)
    assert half.coalitions == chained.coalitions / 2
    some_heads = Game(model, task, heads=[(0, 1), (1, 2), (2, 0), (2, 4)])
    assert estimate_shapley(some_heads, method="exact").coalitions == 2**4 - 2
    some = estimate_shapley(game, method="surrogate", max_evaluations=200)
    assert some.coalitions == 200
    assert permutations.n_bytes > 0
    assert "method surrogate" in str(some)
    assert estimate_shapley(game, method="gradients").coalitions == 36


def test_bad_input_is_one_line_each():
    model, task = tiny()
    for options, message in (
        ({"method": "gradients", "max_evaluations": 8}, "error over pairs .* at least 20"),
        ({"method": "gradients", "heads": ["L0H0", "L0H1"]}, "2 players need no estimate"),
        ({"method": "exact"}, r"2\^18 coalitions of 18 players, but the limit is 16"),
        ({"target_sem": 0}, "target_sem=0"),
        ({"method": "permutations", "max_evaluations": 33}, "at least 34"),
        ({"method": "exact", "heads": ["L0H0", "L0H1"], "max_evaluations": 1}, "at least 2"),
        ({"players": {}}, "nothing to ablate"),
        ({"heads": []}, "without heads"),
    ):
        with pytest.raises(OptionError, match=message) as error:
            shapley(model, task, **options)
        assert "\n" not in str(error.value)
    with pytest.raises(UnknownName, match="unknown value of method 'kernel'; known: auto, exact"):
        shapley(model, task, method="kernel")
    with pytest.raises(UnknownName, match="unknown player 'L9H9'"):
        interactions(model, task, among=["L0H0", "L9H9"])
    with pytest.raises(OptionError, match="at least two players"):
        interactions(model, task, among=["L0H0"])
    with pytest.raises(OptionError, match="among= with the labels"):
        interactions(model, task)
    prompts = Prompts(((5, 6, 7),))
    constant = custom(
        model, prompts, lambda x, i: 1.0 + 0 * x.sum(), name="one", unit="1", higher_is_better=True
    )
    with pytest.raises(OptionError, match="task one is constant"):
        shapley(model, constant)
    wrong = custom(
        model, prompts, lambda x, i: x.sum() / 0.0, name="broken", unit="1", higher_is_better=True
    )
    with pytest.raises(NonFiniteError, match="broken is"):
        shapley(model, wrong)
