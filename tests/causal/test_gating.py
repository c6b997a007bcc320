"""Learned gates where the right ones are known: planted heads, analytic values, gates by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import zoo

from interp.causal import accuracy, learn_gates, logit_difference, repeats_task
from interp.causal.game.game import Game
from interp.causal.gating.concrete import deterministic, open_probability, sampled
from interp.causal.gating.gated_task import GatedTask
from interp.causal.gating.learn import halves
from interp.causal.gating.result import LearnedGates
from interp.causal.gating.units import GatedUnits, layer_matched_sets, selected
from interp.core.errors import NonFiniteError, OptionError, UnknownName
from interp.core.head import Head
from interp.core.statistics import prediction_band
from interp.model.locate.probe import probe
from interp.planted import build


@cache
def planted():
    p = build("bystander")
    model = probe(p.model, "planted:bystander")
    working = {str(Head(*p.roles[role][0])) for role in ("induction", "previous_token")}
    return model, repeats_task(model, n=8, max_length=12), working


@cache
def tiny():
    model = probe(zoo.FAMILIES["llama"].build("sdpa"), "llama")
    return model, repeats_task(model, n=4, max_length=6)


def test_a_hard_concrete_gate_is_0_as_often_as_it_says():
    a = torch.tensor([-2.0, 0.0, 1.5], dtype=torch.double)
    drawn = sampled(a, 40_000, torch.Generator().manual_seed(0))
    share = (drawn > 0).double().mean(0)
    assert share.numpy() == pytest.approx(open_probability(a).numpy(), abs=0.01)
    assert ((drawn >= 0) & (drawn <= 1)).all()
    assert (drawn == 1).any()
    assert (drawn == 0).any()
    assert deterministic(torch.tensor([-9.0, 0.0, 9.0])).tolist() == pytest.approx([0, 0.5, 1])


def test_gates_of_the_game_and_of_the_differentiable_task_agree():
    model, task = tiny()
    units = GatedUnits.of(model, "kv_groups", "none")
    gated = GatedTask(model, task, units, "mean-batch")
    gates = torch.rand(3, len(units), generator=torch.Generator().manual_seed(1)).double()
    own = torch.zeros(3, len(task)).double()
    for number, batch in enumerate(gated.game.batches):
        for row in range(3):
            with torch.no_grad():
                own[row, list(batch.which)] = gated.value(number, gates[row][None]).double()
    game = Game(model, task, players="kv_groups", kind="mean-batch", reuse=False)
    assert own.numpy() == pytest.approx(game.values(gates).numpy(), abs=1e-5)


def test_a_closed_mlp_writes_nothing_and_a_half_open_one_half():
    model, task = tiny()
    units = GatedUnits.of(model, "heads", "only")
    assert units.labels == ("L0MLP", "L1MLP", "L2MLP")
    gated = GatedTask(model, task, units, "zero")
    for factor in (0.0, 0.5):
        found = gated.values(torch.tensor([[1.0, factor, 1.0]]))[0]
        mlp = model.module.get_submodule("model.layers.1.mlp")
        handle = mlp.register_forward_hook(lambda m, a, out, f=factor: out * f)
        wanted = Game(model, task, reuse=False, check=False).clean
        handle.remove()
        assert found.numpy() == pytest.approx(wanted.numpy(), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["hard_concrete", "causal"])
def test_planted_heads_are_kept_and_the_bystanders_are_not(method):
    model, task, working = planted()
    found = learn_gates(model, task, method=method, n_restarts=2, steps=100, n_random=40)
    assert set(found.kept) == working
    held = found.held_out
    assert held["kept"].mean() == pytest.approx(held["all"].mean(), abs=0.05)
    # random sets of the same size almost never hold both heads
    assert np.median(held["random"].mean(1)) > held["all"].mean() + 1
    if method == "causal":
        roles = dict(zip(found.labels, found.roles, strict=True))
        assert {x for x, r in roles.items() if r == "necessary"} == working
        assert {roles[x] for x in found.labels if x not in working} == {"irrelevant"}


@pytest.mark.slow
def test_heads_that_harm_a_task_are_interfering():
    model, task, working = planted()
    ids = [list(p) for p in task.prompts.ids]
    # after the copy's first token, the plan wants anything but what induction predicts
    halves_of = [(len(p) - 1) // 2 for p in ids]
    prompts = [p[: half + 2] for p, half in zip(ids, halves_of, strict=True)]
    right = [p[2] for p in prompts]
    wrong = [p[3] for p in prompts]
    plain = logit_difference(model, prompts, right, wrong)
    assert float(Game(model, plain).clean.mean()) > 1  # the planted head does predict it
    harmed = logit_difference(model, prompts, wrong, right)
    found = learn_gates(model, harmed, method="causal", n_restarts=2, steps=120, n_random=10)
    roles = dict(zip(found.labels, found.roles, strict=True))
    # closing one of the two is enough, and the other is then pushed open
    interfering = {x for x, r in roles.items() if r == "interfering"}
    assert interfering
    assert interfering <= working
    assert {roles[x] for x in found.labels if x not in working} == {"irrelevant"}


def test_gates_are_seeded_and_restarts_differ():
    model, task, _ = planted()
    first, again = (
        learn_gates(model, task, n_restarts=2, steps=20, n_random=5, seed=3) for _ in range(2)
    )
    assert (first.logit == again.logit).all()
    assert not (first.logit[0] == first.logit[1]).all()
    assert first.steps == (20, 20)
    assert first.settled == (False, False)
    assert sorted(first.provenance["fitted_on"] + first.provenance["judged_on"]) == [*range(8)]


def test_prompts_of_one_cluster_stay_in_one_half_and_parts_keep_their_values():
    model, task = tiny()
    labelled = replace(task, prompts=replace(task.prompts, clusters=("a", "a", "b", "b")))
    first, second = halves(labelled, 0)
    assert sorted([first, second]) == [[0, 1], [2, 3]]
    whole = Game(model, task, reuse=False).clean
    part = Game(model, selected(task, [3, 1]), reuse=False).clean
    assert part.numpy() == pytest.approx(whole[[3, 1]].numpy(), abs=1e-6)


def test_costs_add_up_to_the_weights_of_the_attention():
    model, _ = tiny()
    units = GatedUnits.of(model, "heads", "with")
    attention = sum(
        p.numel() for n, p in model.module.named_parameters() if "self_attn" in n and p.dim() > 1
    )
    mlps = sum(p.numel() for n, p in model.module.named_parameters() if ".mlp." in n)
    cost = units.cost(model, "parameters", 8.0)
    assert cost[: units.n_heads].sum() == attention
    assert cost[units.n_heads :].sum() == mlps
    cache = GatedUnits.of(model, "kv_groups", "none").cost(model, "cache", 8.0)
    assert cache.tolist() == [2 * 8 * 4] * 6  # a key and a value of eight float32 per group
    assert units.cost(model, "count", 8.0).sum() == len(units)


def test_a_penalty_that_exceeds_the_task_removes_everything_and_none_keeps_what_helps():
    model, task, working = planted()
    dear = learn_gates(model, task, n_restarts=1, steps=120, penalty=20.0, n_random=5)
    assert dear.kept == ()
    assert math.isnan(dear.sem[0])
    free = learn_gates(model, task, n_restarts=1, steps=60, penalty=0.0, n_random=5)
    assert working <= set(free.kept)


def test_matched_sets_have_as_many_units_in_every_layer():
    model, _ = tiny()
    units = GatedUnits.of(model, "heads", "none")
    kept = np.zeros(len(units))
    kept[[0, 1, 7]] = 1
    drawn = layer_matched_sets(units, kept, 50, np.random.default_rng(0)).numpy()
    assert (drawn.reshape(50, 3, 6).sum(2) == [2, 1, 0]).all()
    assert len({tuple(x) for x in drawn}) > 20


def test_random_kept_sets_fall_outside_their_band_at_the_nominal_rate():
    model, _ = tiny()
    units = GatedUnits.of(model, "heads", "none")
    rng = np.random.default_rng(7)
    weight = rng.standard_normal(len(units))  # the value of a set, without a model
    pairs = rng.standard_normal((len(units), len(units))) / 4
    kept = np.tile([1, 1, 1, 0, 0, 0], 3)  # three of six heads in each of three layers
    outside = []
    for _ in range(2000):
        sets = layer_matched_sets(units, kept, 51, rng).numpy()
        value = sets @ weight + np.einsum("ni,ij,nj->n", sets, pairs, sets)
        low, high = prediction_band(value[1:])
        outside.append(not low <= value[0] <= high)
    assert np.mean(outside) == pytest.approx(0.05, abs=0.015)


def test_saved_gates_are_read_back(tmp_path):
    model, task, _ = planted()
    found = learn_gates(model, task, n_restarts=2, steps=20, n_random=5)
    found.save(tmp_path / "gates.json")
    assert LearnedGates.load(tmp_path / "gates.json").equals(found)


def test_bad_input_is_refused_in_one_line(monkeypatch):
    model, task, _ = planted()
    ids = [list(p) for p in task.prompts.ids]
    cases = [
        ({"task": accuracy(model, ids)}, OptionError, "step function"),
        ({"method": "voita"}, UnknownName, "hard_concrete"),
        ({"cost": "watts"}, UnknownName, "cost"),
        ({"n_restarts": 0}, OptionError, "at least 1"),
        ({"penalty": float("nan")}, OptionError, "penalty"),
        ({"mlps": "some"}, UnknownName, "mlps"),
        ({"method": "causal", "cost": "flops"}, OptionError, "omit cost"),
    ]
    for given, error, text in cases:
        with pytest.raises(error, match=text) as raised:
            learn_gates(model, **({"task": task} | given))
        assert "\n" not in str(raised.value)
    value = GatedTask.value
    monkeypatch.setattr(GatedTask, "value", lambda *a: value(*a) * float("nan"))
    with pytest.raises(NonFiniteError, match="diverges at step 1"):
        learn_gates(model, task, steps=5)
