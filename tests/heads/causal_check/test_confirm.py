"""The causal check where the answer is built in: working heads, bystanders, random weights."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import zoo

import interp
from interp.causal import Task, custom, logit_difference, loss, repeats_task
from interp.causal.game.game import Game
from interp.causal.text_tasks import plain_task
from interp.circuits.head_checks import confirm
from interp.circuits.head_tasks import MADE_HERE, own_task
from interp.circuits.tasks import TASKS
from interp.core.errors import OptionError, UnknownName
from interp.core.prompts import repeats
from interp.core.registry import METRICS
from interp.heads.causal_check.declared_tasks import NONE, OF_OPTION, stated_task
from interp.heads.causal_check.needles import needle_task
from interp.heads.causal_check.sets import Chosen, anywhere, matched_sets
from interp.model.random_weights import random_init

SMALL = {"n": 4, "max_length": 12}


@pytest.fixture(scope="module")
def small_bystander_model(small_bystander) -> interp.Model:
    return interp.load(small_bystander.model, name="bystander")


@pytest.fixture(scope="module")
def small_repeats(small_bystander_model) -> Task:
    return repeats_task(small_bystander_model, n=4, max_length=8)


def test_planted_heads_matter_and_the_bystander_does_not(
    small_bystander_model, small_bystander, small_repeats
) -> None:
    found = confirm(
        small_bystander_model,
        {r: small_bystander.roles[r] for r in ("induction", "bystander")},
        task=small_repeats,
    )
    working, idle = found.of("induction", "given"), found.of("bystander", "given")
    assert working.ratio > 100
    assert working.ratio_low > 100
    assert working.rank == 1
    assert working.p == pytest.approx(1 / 4)  # one of four heads of its layer: the exact test
    assert idle.ratio == pytest.approx(1, abs=0.02)
    assert idle.times_clean == pytest.approx(1, abs=0.01)
    assert abs(idle.damage) < 1e-3
    assert idle.rank > 1


def test_a_detector_names_both_and_the_check_tells_what_each_is_worth(
    small_bystander_model, small_bystander
) -> None:
    """Two heads look alike to the detector; alone, only one of them is worth anything."""
    table = interp.score(small_bystander_model, ["induction"], null="none")
    found = confirm(small_bystander_model, table, k=2, **SMALL)
    assert [c.purpose for c in found] == ["own", "transfer", "plain"]
    heads = {
        str(interp.Head(*h)) for r in ("induction", "bystander") for h in small_bystander.roles[r]
    }
    assert set(found.of("induction", "own").heads) == heads
    assert found.of("induction", "own").ratio > 2
    assert found.of("induction", "plain").ratio == pytest.approx(1, abs=0.05)


def test_the_numbers_are_those_of_plain_forwards(
    small_bystander_model, small_bystander, small_repeats
) -> None:
    """Clean, without the top, and without every other set, run the slow way."""
    layer, head = small_bystander.roles["induction"][0]
    check = confirm(small_bystander_model, {"x": [(layer, head)]}, task=small_repeats).of(
        "x", "given"
    )

    def value(heads):
        with (
            torch.no_grad(),
            small_bystander_model.edited(*([interp.zero(heads)] if heads else [])),
        ):
            logits = [
                small_bystander_model.run(interp.Prompts((ids,)))[0]
                for ids in small_repeats.prompts.ids
            ]
        rows = [x[list(at)] for x, at in zip(logits, small_repeats.positions, strict=True)]
        return np.array([float(small_repeats.values(r, [i])) for i, r in enumerate(rows)])

    others = [value([(layer, h)]).mean() for h in range(4) if h != head]
    assert check.clean == pytest.approx(value([]).mean(), rel=1e-5)
    assert check.out == pytest.approx(value([(layer, head)]).mean(), rel=1e-5)
    assert check.random == pytest.approx(np.median(others), rel=1e-5)
    assert check.ratio == pytest.approx(check.out / check.random, rel=1e-12)
    assert check.difference == pytest.approx(check.out - check.random, rel=1e-12)
    assert check.ratio_low < check.ratio < check.ratio_high


def test_the_score_of_a_random_model_is_worth_nothing_in_the_long_run() -> None:
    """Over many metrics and seeds the p-values of a random model are those of chance."""
    base = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")
    p = []
    for seed in range(4):
        model = random_init(base, seed)
        task = repeats_task(model, n=3, max_length=6, seed=seed)
        task = replace(task, chance=None)  # else the check is refused: the model is at chance
        names = ["induction", "previous_token", "entropy", "largest_weight"]
        table = interp.score(model, names, null="none", seed=seed)
        found = confirm(model, table, k=2, task=task, plain=task, seed=seed)
        p += [c.p for c in found]
    assert len(p) == 16  # the plain task is the given one: each score is checked once
    assert np.mean(p) > 0.3
    assert np.mean(np.array(p) < 0.1) < 0.35


def test_a_rank_among_all_sets_is_uniform_where_heads_are_alike(
    small_bystander_model, small_repeats
) -> None:
    """Every head taken as "top" in turn: the ranks of one layer are 1 to 4, each once."""
    groups = {f"h{h}": [(1, h)] for h in range(4)}
    found = confirm(small_bystander_model, groups, task=small_repeats)
    assert sorted(c.rank for c in found if c.purpose == "given") == [1, 2, 3, 4]


def test_sets_keep_the_layers_are_never_the_top_and_are_all_where_few(
    small_bystander_model, small_repeats
) -> None:
    game = Game(small_bystander_model, small_repeats)
    top = Chosen("x", (1, 4, 6))  # one head of layer 0, two of layer 1
    every = matched_sets(game, top, 1000, 0)
    assert every.possible == len(every.sets) == math.comb(4, 1) * math.comb(4, 2) - 1
    assert every.all_of_them
    assert len({s.players for s in every.sets}) == every.possible
    want = {
        tuple(sorted((a, *b))) for a in range(4) for b in itertools.combinations(range(4, 8), 2)
    }
    assert {s.players for s in every.sets} == want - {top.players}
    few = matched_sets(game, top, 5, 0)
    assert len(few.sets) == 5
    assert not few.all_of_them
    assert {s.players for s in few.sets} <= want - {top.players}
    assert few.sets != matched_sets(game, top, 5, 1).sets
    for seed in range(3):  # all but one of the other sets: the top would be among them
        assert top.players not in {s.players for s in matched_sets(game, top, 22, seed).sets}


def test_sets_of_any_layers_stand_beside_those_of_the_same(
    small_bystander_model, small_bystander, small_repeats
) -> None:
    game = Game(small_bystander_model, small_repeats)
    top = Chosen("x", (1, 4))
    every = anywhere(game, top, 1000, 0)
    assert every.possible == len(every.sets) == math.comb(8, 2) - 1
    assert {s.players for s in every.sets} == set(itertools.combinations(range(8), 2)) - {(1, 4)}
    check = confirm(
        small_bystander_model, {"i": small_bystander.roles["induction"]}, task=small_repeats
    ).of("i", "given")
    (layer, head) = small_bystander.roles["induction"][0]
    gates = 1 - torch.eye(8)
    alone = game.values(gates).mean(1).numpy()
    mine = alone[4 * layer + head]
    assert check.any_random == pytest.approx(np.median(np.delete(alone, 4 * layer + head)))
    assert check.any_rank == (alone >= mine).sum()
    assert check.any_p == pytest.approx(check.any_rank / 8)
    assert check.n_any == check.n_any_possible == 7
    # a whole layer has no other set of its shape, but there are other sets of four heads
    whole = confirm(
        small_bystander_model,
        {"layer": [(1, h) for h in range(4)]},
        task=small_repeats,
        n_random=100,
    ).of("layer", "given")
    assert whole.n_random == 0
    assert math.isnan(whole.p)
    assert whole.n_any == math.comb(8, 4) - 1
    assert "same layers: there is no other set" in whole.summary()


def test_a_check_says_how_small_p_can_be(
    small_bystander_model, small_bystander, small_repeats
) -> None:
    check = confirm(
        small_bystander_model, {"i": small_bystander.roles["induction"]}, task=small_repeats
    ).of("i", "given")
    assert check.least_p == pytest.approx(1 / 4)
    assert "p 0.25, least possible 0.25" in check.summary()
    doubts = " ".join(check.doubts())
    assert "only 3 other sets of the same layers, so p cannot be below 0.25" in doubts
    assert "With 7 other sets in the whole model, p cannot be below 0.12." in doubts
    two = confirm(
        small_bystander_model, {"i": [(0, 3), (1, 0)]}, task=small_repeats, n_random=20
    ).of("i", "given")
    assert two.least_p == two.any_least_p == 1 / 16 or two.any_least_p == 1 / 21
    assert not any("whole model" in d for d in two.doubts())


def test_a_task_that_the_model_does_not_do_is_refused(
    small_bystander_model, small_bystander, small_repeats
) -> None:
    """Random tokens once: nothing predicts them, so no head can be needed for it."""
    other = loss(
        small_bystander_model,
        small_repeats.prompts,
        [[2]] * len(small_repeats),
        name="unpredictable",
    )
    assert other.chance == pytest.approx(math.log(24))
    found = confirm(small_bystander_model, {"i": small_bystander.roles["induction"]}, task=other)
    assert [check.purpose for check in found] == ["plain"]
    assert f"no better than uniform guessing ({math.log(24):.3g})" in found.notes["i"]
    assert "not checked on the task unpredictable" in repr(found)
    done = confirm(
        small_bystander_model, {"i": small_bystander.roles["induction"]}, task=small_repeats
    ).of("i", "given")
    assert done.clean < done.chance - 1
    assert not done.at_chance


def test_heads_are_not_tested_on_the_prompts_they_were_chosen_on(small_bystander_model) -> None:
    found = confirm(small_bystander_model, ["induction"], k=1)
    scored = interp.score(small_bystander_model, ["induction"], null="none").provenance[
        "bystander", "induction"
    ]
    assert found.provenance["tasks"]["second_copy_loss"]["prompts_hash"] != scored["prompts_hash"]
    assert not any(c.same_prompts for c in found)
    table = interp.score(
        small_bystander_model,
        ["induction"],
        repeats(small_bystander_model, n=16, max_length=24),
        null="none",
    )
    same = confirm(
        small_bystander_model, table, k=1, task=repeats_task(small_bystander_model, n=16)
    ).of("induction", "given")
    assert same.same_prompts
    assert "chosen on the prompts of this task" in same.doubts()[-1]


def test_a_task_where_more_is_better_is_turned(
    small_bystander_model, small_bystander, small_repeats
) -> None:
    prompts = [list(ids) for ids in small_repeats.prompts.ids]
    answers = [ids[-1] for ids in prompts]
    wrong = [1 + ids[-1] % 20 for ids in prompts]
    better = logit_difference(small_bystander_model, [p[:-1] for p in prompts], answers, wrong)
    found = confirm(
        small_bystander_model, {"induction": small_bystander.roles["induction"]}, task=better
    )
    check = found.of("induction", "given")
    assert check.out < check.clean
    assert check.damage == pytest.approx(check.clean - check.out, abs=1e-9)
    assert check.rank == 1
    assert check.difference < 0


def test_no_ratio_of_numbers_around_zero(small_bystander_model, small_bystander) -> None:
    prompts = [[0, 3, 4, 5, 3], [0, 6, 7, 8, 6]]
    signed = custom(
        small_bystander_model,
        prompts,
        lambda logits, i: logits[0, 3] - logits[0, 4],
        name="signed",
        unit="logits",
        higher_is_better=True,
    )
    check = confirm(
        small_bystander_model, {"h": small_bystander.roles["induction"]}, task=signed
    ).of("h", "given")
    if check.out < 0 or check.random <= 0:
        assert math.isnan(check.ratio)
    assert not math.isnan(check.difference)


def test_orders(small_bystander_model, small_repeats) -> None:
    table = interp.score(small_bystander_model, ["entropy"])
    frame = table.to_pandas()
    named = [str(interp.Head(r.layer, r.head)) for r in frame.itertuples()]
    highest, lowest = named[frame["score"].idxmax()], named[frame["score"].idxmin()]
    over = named[(frame["score"] - frame["null"]).idxmax()]
    for by, want in (("score", highest), ("lowest", lowest), ("null", over)):
        assert confirm(small_bystander_model, table, k=1, by=by, task=small_repeats).checks[
            0
        ].heads == (want,)


def test_tasks_are_declared_and_sized(small_bystander_model) -> None:
    for name, entry in METRICS.items():
        if entry.kind in ("detector", "experiment") or entry.group == "detectors":
            assert stated_task(name), f"{name} declares no task, and no reason for having none"
        stated = stated_task(name)
        here = not stated or stated.startswith(NONE) or stated == OF_OPTION
        assert here or stated in MADE_HERE or stated in TASKS, (name, stated)
    assert own_task(small_bystander_model, "entropy") is None
    own = own_task(small_bystander_model, "induction:x=1", n=3, max_length=5)
    assert own is not None
    assert (own.name, len(own)) == ("second_copy_loss", 3)
    plain = plain_task(small_bystander_model, n=3, max_length=9)
    assert (plain.name, len(plain)) == ("plain_loss", 3)
    assert {len(ids) for ids in plain.prompts.ids} == {9}
    text = plain_task(interp.load("bundled:induction"), n=2, max_length=20)
    assert text.prompts.design == "text"


def test_the_needle_task_reads_the_values_after_the_key(small_bystander_model) -> None:
    task = needle_task(small_bystander_model, n=3, max_length=20)
    assert len(task) == 3
    for ids, at in zip(task.prompts.ids, task.positions, strict=True):
        assert len(ids) == 24  # the prompt, and the four values of the answer
        assert at == (19, 20, 21, 22)  # logits one before what they predict
        key, values = ids[19], ids[20:]
        where = ids.index(key)
        assert ids[where + 1 : where + 5] == values
    assert len({ids.index(ids[19]) for ids in task.prompts.ids}) == 3  # at different depths
    assert len({ids[19] for ids in task.prompts.ids}) == 3  # different needles


def test_interrupted_it_goes_on(
    small_bystander_model, small_bystander, small_repeats, tmp_path, monkeypatch
) -> None:
    ran = []
    whole = Game._run
    monkeypatch.setattr(Game, "_run", lambda g, t, *a: ran.append(len(t)) or whole(g, t, *a))
    first = confirm(
        small_bystander_model,
        {"i": small_bystander.roles["induction"]},
        task=small_repeats,
        resume=tmp_path,
    )
    before, _ = sum(ran), ran.clear()
    again = confirm(
        small_bystander_model,
        {"i": small_bystander.roles["induction"]},
        task=small_repeats,
        resume=tmp_path,
    )
    assert again.checks == first.checks
    assert sum(ran) < before / 2  # all that runs again is the test that the task is not constant


def test_what_it_hands_back(small_bystander_model, small_bystander, small_repeats) -> None:
    found = confirm(
        small_bystander_model, {"i": small_bystander.roles["induction"]}, task=small_repeats
    )
    frame = found.to_pandas()
    assert list(frame["purpose"]) == ["given", "plain"]
    assert "second_copy_loss" in repr(found)
    assert '"made_by": "interp.circuits.head_checks"' in found.to_json()
    with pytest.raises(KeyError, match="was not checked"):
        found.of("i", "own")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"k": 9}, "entropy: k=9 exceeds the 8 heads with a score; lower k"),
        ({"k": 0}, "k=0 is not valid: k is the number of heads ablated together, at least 1"),
        ({"k": 8}, "the 8 top heads are all heads of their layers and of the model"),
        ({"n_random": 0}, "n_random=0"),
        ({"players": "layers"}, "players='layers'"),
        ({"heads": ["L0H1"], "k": 2}, "k=2 exceeds the 1 heads"),
    ],
)
def test_bad_input(small_bystander_model, small_repeats, change, line) -> None:
    table = interp.score(small_bystander_model, ["entropy"], null="none")
    with pytest.raises(OptionError, match=line):
        confirm(small_bystander_model, table, **({"k": 1, "task": small_repeats} | change))


def test_bad_names(small_bystander_model, small_repeats) -> None:
    with pytest.raises(UnknownName, match="did you mean entropy"):
        confirm(small_bystander_model, ["entrpy"], k=1, task=small_repeats)
    with pytest.raises(UnknownName, match="unknown order"):
        confirm(
            small_bystander_model,
            interp.score(small_bystander_model, ["entropy"], null="none"),
            k=1,
            by="size",
            task=small_repeats,
        )
    with pytest.raises(OptionError, match="no head L7H0"):
        confirm(small_bystander_model, {"x": ["L7H0"]}, task=small_repeats)
    with pytest.raises(OptionError, match="no heads are given"):
        confirm(small_bystander_model, {}, task=small_repeats)


def test_a_constant_task_is_refused(small_bystander_model) -> None:
    constant = custom(
        small_bystander_model,
        [[0, 3, 4]],
        lambda logits, i: torch.ones(()),
        name="one",
        unit="",
        higher_is_better=True,
    )
    with pytest.raises(OptionError, match="task one is constant"):
        confirm(small_bystander_model, {"x": ["L0H0"]}, task=constant)
