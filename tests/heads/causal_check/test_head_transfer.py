"""Transfer of head claims where the answer is built in: by copying, by position, by a constant."""

from __future__ import annotations

import copy
import html
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import interp
from interp import planted
from interp.causal.game.game import Game
from interp.circuits import head_games
from interp.circuits.head_checks import confirm
from interp.circuits.head_games import head_transfers
from interp.circuits.transfer_prompts import answers_of, repeated, transfer_task
from interp.core.prompts import Prompts, repeats
from interp.heads.causal_check.head_transfer import STEPS, judge_transfers
from interp.heads.causal_check.needles import Unanswered
from interp.heads.causal_check.result import confirmation_of
from interp.heads.causal_check.sets import Chosen
from interp.model.random_weights import random_init
from interp.planted.trained.cases import CASES
from interp.report.checks import check_page

OFFSET = 3  # of the planted head with a fixed offset
QUICK = {"n": 4, "max_length": 12, "n_random": 1}


@pytest.fixture(scope="module")
def built():
    return planted.build("induction")


@pytest.fixture(scope="module")
def copying_model(built) -> interp.Model:
    return interp.load(built.model, name="planted:induction")


def with_head(built, edit) -> interp.Model:
    """Return the planted model with a bystander of the induction head's group made by `edit`."""
    module = copy.deepcopy(built.model)
    layer, head = built.roles["induction"][0]
    other = head ^ 1  # shares the keys and values of the induction head
    attention = module.model.layers[layer].self_attn
    d = attention.head_dim
    rows, columns = slice(other * d, (other + 1) * d), slice(head * d, (head + 1) * d)
    with torch.no_grad():
        edit(module, attention, rows, columns)
    return interp.load(module, name="edited")


def silence_induction(attention, columns) -> None:
    attention.o_proj.weight[:, columns] = 0


def by_position(built) -> interp.Model:
    """Induction is replaced by a head that copies the token at a fixed offset."""
    fixed = planted.build("positional")
    layer, head = fixed.roles["offset"][0]
    source = fixed.model.model.layers[layer].self_attn

    def edit(module, attention, rows, columns) -> None:
        d = attention.head_dim
        # the query reads only the constant coordinate, which has its own basis in each model
        query = source.q_proj.weight[head * d : (head + 1) * d].double()
        constant = fixed.subspaces["constant"][0].double()
        here = built.subspaces["constant"][0].double()
        new = (query @ constant)[:, None] * here[None]
        attention.q_proj.weight[rows] = new.to(attention.q_proj.weight.dtype)
        attention.o_proj.weight[:, rows] = attention.o_proj.weight[:, columns]
        silence_induction(attention, columns)

    return with_head(built, edit)


def test_the_built_in_heads_of_the_answer_and_of_the_step_transfer(built, copying_model) -> None:
    heads = {role: built.roles[role] for role in ("induction", "previous_token")}
    found = confirm(copying_model, heads, **QUICK)
    [answer], [step] = (found.of(role, "own").transfers for role in heads)
    assert (answer.claim, step.claim) == ("answer", "step")
    assert answer.verdict == step.verdict == "transfers"
    assert answer.other_answer == pytest.approx(answer.ablated, rel=0.02)
    assert answer.other_computation == pytest.approx(0, abs=1e-3)
    assert step.other_answer == pytest.approx(0, abs=1e-2)
    assert step.other_computation == pytest.approx(step.ablated, rel=0.02)
    assert answer.n == answer.n_clusters >= 30
    assert not found.failing
    assert "fails transfer" not in found.conclusions["induction"].sentence


def test_an_answer_step_fails_as_a_step_and_a_step_as_an_answer(built, copying_model) -> None:
    swapped = {"induction": built.roles["previous_token"], "echo": built.roles["induction"]}
    found = confirm(copying_model, swapped, **QUICK)
    assert "echo" in STEPS
    assert {name: [x.verdict for x in some] for name, some in found.failing.items()} == {
        "induction": ["fails"],
        "echo": ["fails"],
    }


def test_a_head_that_copies_by_position_passes_ablation_and_fails_transfer(built) -> None:
    """On prompts of one period a fixed offset gives the answer, but by another route."""
    edited = by_position(built)
    layer, head = built.roles["induction"][0]
    period = OFFSET + 1
    rows = [repeats(edited, n=1, max_length=period, seed=seed).ids[0] for seed in range(24)]
    task = repeated(edited, Prompts(tuple(rows), "one period"))
    assert damage_of(edited, task.other_answer, {"it": [(layer, head ^ 1)]})[0] > 5
    damages = [
        damage_of(edited, each, {"it": [(layer, head ^ 1)]}, kind)[1]
        for each, kind in (
            (task.other_answer, "zero"),
            (task.other_answer, "resample"),
            (task.other_computation, "resample"),
        )
    ]
    [found] = judge_transfers(["positional"], "answer", "logits", *damages)
    assert found.ablation_p < 0.01
    assert found.verdict == "fails"
    assert found.other_answer == pytest.approx(found.other_computation, rel=0.1)


def damage_of(model, task, heads, kind="zero"):
    """Return the mean value with all heads, and the damage without each, by prompt."""
    game = interp.causal.Game(model, task, players=heads, kind=kind, check=False)
    damage = game.clean - game.values(1 - torch.eye(len(heads)))
    return float(game.clean.mean()), damage.numpy()


def test_a_head_with_a_constant_output_passes_ablation_and_fails_transfer() -> None:
    rng = np.random.default_rng(0)
    ablated, nothing = 2 + 0.1 * rng.normal(size=(1, 32)), np.zeros((1, 32))
    [found] = judge_transfers(["constant"], "answer", "logits", ablated, nothing, nothing)
    assert (found.verdict, found.p) == ("fails", 1.0)
    assert (found.low, found.high) == (0, 0)


def test_few_prompts_neither_pass_nor_fail() -> None:
    rng = np.random.default_rng(0)
    ablated = 2 + 0.1 * rng.normal(size=(2, 12))
    noisy = rng.permuted(np.tile([9.0, -7.0], (2, 6)), axis=1)  # 1 in mean
    found = judge_transfers(["a", "b"], "answer", "logits", ablated, noisy, 0 * noisy)
    assert [x.verdict for x in found] == ["not shown"] * 2
    # three clusters allow no p below 0.25
    groups = ["a", "b", "c"] * 4
    found = judge_transfers(
        ["a"], "answer", "logits", ablated[:1], ablated[:1], 0 * noisy[:1], clusters=groups
    )
    assert (found[0].verdict, found[0].n_clusters) == ("not shown to be needed", 3)
    assert found[0].ablation_p == pytest.approx(0.25)


def test_noise_is_listed_and_passes_at_no_more_than_the_nominal_rate() -> None:
    """Ablation without a mean effect, and sources whose damages do not differ in mean."""
    rng = np.random.default_rng(1)
    listed = passed = 0
    n = 200
    for seed in range(n):
        ablated, one, two = rng.normal(size=(3, 4, 12))
        found = judge_transfers([*"abcd"], "answer", "logits", ablated, one, two, seed=seed)
        listed += any(x.verdict in ("fails", "transfers") for x in found)
        passed += any(x.p <= 0.05 for x in found)
    assert max(listed, passed) / n <= 0.05


def test_heads_of_random_models_are_not_listed(built) -> None:
    """The model cannot do the task; where that is not asked, few heads pass ablation by chance."""
    listed = 0
    for seed in range(6):
        model = random_init(interp.load(built.model, name="random"), seed=seed)
        task = repeated(model, repeats(model, n=20, max_length=6, seed=seed), seed)
        heads = {f"L{layer}H{h}": [(layer, h)] for layer in range(2) for h in range(4)}
        damages = [
            damage_of(model, each, heads, kind)[1]
            for each, kind in (
                (task.other_answer, "zero"),
                (task.other_answer, "resample"),
                (task.other_computation, "resample"),
            )
        ]
        found = judge_transfers([*heads], "answer", "logits", *damages, seed=seed)
        listed += any(x.verdict in ("fails", "transfers") for x in found)
    assert listed <= 1  # of 6 families; 2 or more at a rate of 0.05 have a probability of 0.03


def test_sources_are_of_equal_length_and_keep_what_they_should(copying_model) -> None:
    task = transfer_task(copying_model, "induction", n=40, max_length=8)
    bases = task.other_answer.prompts.ids
    for base, other, same in zip(
        bases, task.other_answer.corrupted.ids, task.other_computation.corrupted.ids, strict=True
    ):
        assert len(base) == len(other) == len(same)
        before = [ids.index(ids[-2]) for ids in (base, other, same)]
        assert [ids[at + 1] for ids, at in zip((base, other, same), before, strict=True)] == [
            base[-1],
            other[-1],
            same[-1],
        ]
        assert base[-1] == same[-1] != other[-1]
        assert before[0] == before[1] != before[2]
        assert sum(a != b for a, b in zip(base, other, strict=True)) == 2  # the answer, twice
        assert base[-2] != same[-2]


def test_answers_are_read_from_the_measure(copying_model) -> None:
    prompts = [(0, 5, 6), (0, 7, 8)]
    task = interp.causal.logit_difference(copying_model, prompts, [3, 4], [[9, 10], [11, 12]])
    assert answers_of(copying_model, task) == [
        (frozenset({3}), frozenset({9, 10})),
        (frozenset({4}), frozenset({11, 12})),
    ]
    lower = interp.causal.loss(copying_model, prompts, [2, 2])
    assert [right for right, _ in answers_of(copying_model, lower)] == [{6}, {8}]
    steps = interp.causal.accuracy(copying_model, prompts, [2, 2])
    with pytest.raises(Unanswered, match="does not tell its answers"):
        answers_of(copying_model, steps)


def test_needles_at_another_depth_and_other_needles() -> None:
    model = interp.load("bundled:induction")
    task = transfer_task(model, "retrieval", n=8, scored={"task": "ids"})
    assert len(task.other_answer) == 8
    answer = [
        tuple(p[i + 1] for i in at)
        for p, at in zip(task.other_answer.prompts.ids, task.other_answer.positions, strict=True)
    ]
    for found, ids in zip(answer, task.other_computation.corrupted.ids, strict=True):
        assert ids[-len(found) :] == found
    for found, ids in zip(answer, task.other_answer.corrupted.ids, strict=True):
        assert ids[-len(found) :] != found


def test_what_cannot_be_tested_is_said(copying_model, built) -> None:
    task = interp.causal.repeats_task(copying_model, n=4, max_length=8)
    heads = {"induction": built.roles["induction"]}
    found = confirm(copying_model, heads, task=task, n=4, n_random=3)
    assert found.provenance["head_transfer_notes"] == {"induction": "the task was given"}
    assert found.of("induction", "given").transfers == ()
    with pytest.raises(Unanswered, match="only 0 of 8 prompts of repeated tokens"):
        transfer_task(copying_model, "induction", n=8, max_length=2)
    with pytest.raises(Unanswered, match="no prompts with the same answer"):
        transfer_task(copying_model, "delimiters")


def test_tests_are_kept_in_files_and_listed_in_every_output(built, copying_model) -> None:
    found = confirm(copying_model, {"induction": built.roles["previous_token"]}, **QUICK)
    again = confirmation_of(json.loads(found.to_json()))
    assert again == found
    [one] = found.failing["induction"]
    assert found.to_pandas()["transfers"][0] == one.summary()
    sentence = found.conclusions["induction"].sentence
    assert "Passes ablation and fails transfer as a head of the answer" in sentence
    assert one.head in sentence
    assert one.summary() in repr(found)
    text = check_page(found.to_pandas(), [dict(found.provenance)], "interp importance verify x")
    assert f"Transfer: {one.summary()}" in html.unescape(text)
    assert sentence in html.unescape(text)


def test_less_than_half_of_the_larger_damage_fails() -> None:
    """Ablation hides what a source shows: then the source is the measure."""
    noise = 0.1 * np.random.default_rng(0).normal(size=(1, 32))
    [found] = judge_transfers(["a"], "answer", "logits", 1 + noise, 4 + noise, 2.5 + 0 * noise)
    assert (found.verdict, found.p <= 0.05) == ("fails", True)


def test_a_damage_below_the_least_is_none(monkeypatch, built, copying_model) -> None:
    noise = 0.1 * np.random.default_rng(0).normal(size=(1, 32))
    damages = 2 + noise, 2 + noise, 0 * noise
    for least, verdict in ((1.0, "transfers"), (3.0, "not shown to be needed")):
        [found] = judge_transfers(["a"], "answer", "logits", *damages, least=least)
        assert found.verdict == verdict
    monkeypatch.setattr(head_games, "NOTHING", 10.0)  # of the distance to uniform guessing
    [found] = transfers_of(copying_model, built)
    assert (found.verdict, found.ablation_p <= 0.05) == ("not shown to be needed", True)


def test_sources_that_the_model_does_not_answer_test_nothing(
    monkeypatch, built, copying_model
) -> None:
    task = transfer_task(copying_model, "induction", n=16, max_length=8)
    prompts = task.other_computation.corrupted.ids
    rng = np.random.default_rng(0)
    random = Prompts(tuple((x[0], *rng.permutation(x[1:]).tolist()) for x in prompts), "random")
    unlike = replace(task, other_computation=replace(task.other_computation, corrupted=random))
    monkeypatch.setattr(head_games, "transfer_task", lambda *_, **__: unlike)
    found = transfers_of(copying_model, built)
    assert isinstance(found, str)
    assert "(other computation): with all heads the model is at" in found


def transfers_of(model, built):
    """Return the transfer test of the built-in induction head."""
    [(layer, head)] = built.roles["induction"]
    player = Game(model, interp.repeats_task(model)).players.labels.index(f"L{layer}H{head}")
    return head_transfers(
        model,
        Chosen("induction", (player,)),
        None,
        None,
        seed=0,
        scored={},
        sizes={},
        level=0.95,
        kind="zero",
    )


def test_pairs_of_contrast_tasks_are_matched_by_answer() -> None:
    model, case = interp.load("trained:retrieval"), CASES["retrieval"]
    task = transfer_task(model, "direct_effect", scored={"task": "trained:retrieval"}, n=12)
    answer, other, same = (
        case.run(np.array(prompts.ids))[0]["retrieval"]
        for prompts in (
            task.other_answer.prompts,
            task.other_answer.corrupted,
            task.other_computation.corrupted,
        )
    )
    assert len(answer) == 12
    assert (answer == same).all()
    assert (answer != other).all()


def test_a_source_of_another_answer_keeps_the_positions(planted_bystander) -> None:
    def distances(prompts):
        return [max(j for j in range(len(x) - 1) if x[j] == x[-1]) for x in prompts.ids]

    name = "planted:bystander"
    task = transfer_task(planted_bystander, "direct_effect", scored={"task": name}, n=12)
    base = distances(task.other_answer.prompts)
    assert base == distances(task.other_answer.corrupted)
    assert base != distances(task.other_computation.corrupted)
    assert len({*base}) > 1
