"""Conclusions of causal checks: the whole role, its controls, another form, one sentence."""

from __future__ import annotations

import contextlib
import html
import json
from dataclasses import fields, replace

import pytest
import torch
from together import over

import interp
from interp.causal import repeats_task
from interp.causal.game.game import Game
from interp.circuits.head_checks import confirm
from interp.circuits.head_tasks import own_task
from interp.circuits.tasks import TASKS
from interp.core.registry import METRICS
from interp.heads.causal_check.conclusion import Conclusion, conclusion_of
from interp.heads.causal_check.declared_tasks import stated_task
from interp.heads.causal_check.needles import Unanswered
from interp.heads.causal_check.one_check import CausalCheck
from interp.heads.causal_check.result import confirmation_of
from interp.report.atlas.mechanisms import check_parts
from interp.report.checks import check_page
from interp.report.printed.check import confirmation_text

SMALL = {"n": 4, "max_length": 12}


def test_the_whole_role_is_ablated_and_then_each_head(bundled_induction) -> None:
    """Eight redundant induction heads: together the task is lost, alone nothing happens."""
    found = confirm(bundled_induction, ["induction"], **SMALL, n_random=20)
    own = found.of("induction", "own")
    assert own.whole
    assert own.heads == tuple(f"L1H{h}" for h in range(8))
    task = own_task(bundled_induction, "induction", **SMALL)
    assert task is not None
    game = Game(bundled_induction, task)
    gates = torch.cat([1 - torch.eye(16)[8:], torch.cat([torch.ones(8), torch.zeros(8)])[None]])
    values = game.values(gates.double()).mean(1).tolist()
    assert own.alone == pytest.approx(values[:8], rel=1e-6)
    assert own.out == pytest.approx(values[8], rel=1e-6)
    assert own.out - own.clean > 4
    assert max(own.alone) - own.clean < 0.5
    assert own.damage_low < own.damage < own.damage_high
    told = found.conclusions["induction"]
    assert told.verdict == "redundant"
    assert "without all 8 induction heads" in told.sentence
    assert "without any one of them alone" in told.sentence
    # no other set of the layer, and a set of any layers holds the role in half of its heads
    assert own.any_shared == pytest.approx(4, abs=0.5)
    assert f"on average {own.any_shared:.2g} of the 8 heads of such a set are induction heads" in (
        told.sentence
    )


def test_controls_that_share_the_role_are_named(bundled_induction) -> None:
    """Beside other induction heads two of them do not stand out, and the sentence says why."""
    found = confirm(bundled_induction, ["induction"], k=2, **SMALL, n_random=40)
    own, told = found.of("induction", "own"), found.conclusions["induction"]
    assert (own.holders, own.holding, own.shared) == (8, 2, 2.0)
    assert told.verdict in ("redundant", "not shown")
    assert "(2 of the 8 induction heads)" in told.sentence
    assert "these controls share the role" in told.sentence


def test_without_a_role_the_first_heads_are_checked(small_bystander) -> None:
    model = interp.load(small_bystander.model, name="bystander")
    task = repeats_task(model, n=4, max_length=8)
    table = interp.score(model, ["entropy", "induction"], null="none")
    found = confirm(model, table, task=task, n_random=20)
    assert [len(c.heads) for c in found] == [3, 3, 3, 3]
    assert "(no induction head was found)" in found.conclusions["induction"].sentence


def test_the_verdicts_of_planted_heads(small_bystander) -> None:
    """A working head is needed in both forms, the bystander in none; too few sets show nothing."""
    model = interp.load(small_bystander.model, name="bystander")
    game = {"n": 6, "max_length": 12}
    alone = confirm(
        model,
        {"induction": small_bystander.roles["bystander"]},
        **game,
    )
    told = alone.conclusions["induction"]
    assert told.verdict == "not needed"
    assert told.sentence.startswith("Not needed: without L")
    working = confirm(model, {"induction": small_bystander.roles["induction"]}, **game)
    assert working.conclusions["induction"].verdict == "not shown"
    assert "too few other sets" in working.conclusions["induction"].sentence


def verdict(own: dict, transfer: dict | None) -> Conclusion:
    """The conclusion of checks with these numbers, on top of those of heads that are needed."""
    numbers = {f.name: 0.25 for f in fields(CausalCheck) if f.type == "float"}
    counts = {f.name: 3 for f in fields(CausalCheck) if f.type == "int"}
    made = CausalCheck(
        model="m",
        metric="induction",
        task="loss",
        purpose="own",
        kind="zero",
        unit="nats",
        higher_is_better=False,
        same_prompts=False,
        **{**numbers, **counts},
        heads=("L0H1",),
    )
    needed = {
        "clean": 0.1,
        "clean_sem": 0.01,
        "chance": 5.0,
        "out": 3.0,
        "damage": 2.9,
        "damage_low": 2.5,
        "damage_high": 3.3,
        "n_random": 60,
        "p": 1 / 61,
        "least_p": 1 / 61,
        "any_least_p": 1 / 61,
        "any_p": 1 / 61,
        "n_any": 60,
        "heads": ("L0H1",),
        "k": 1,
    }
    one = replace(made, **{**needed, **own})
    other = None if transfer is None else replace(made, **{**needed, **transfer})
    return conclusion_of(one, other, "", "the task has one form")


@over(
    ("own", "transfer", "expected", "words"),
    [
        ({}, {}, "needed", "the same in another form"),
        ({}, None, "needed", "not asked in another form, because the task has one form"),
        ({}, {"p": 0.4}, "needed in one form", "but not in another form"),
        ({}, {"damage_low": -0.1}, "needed in one form", "but not in another form"),
        ({"p": 0.06}, {}, "not shown", "no more than without other heads of the same layers"),
        ({"damage_low": -0.1}, {}, "not shown", "which may be chance"),
        ({"damage_low": -0.1, "damage_high": 0.04}, {}, "not needed", "without L0H1"),
        ({"damage_low": 5e-4, "damage_high": 0.04}, {}, "not needed", "without L0H1"),
        ({"damage_low": 5e-4, "damage_high": 0.06, "p": 0.2}, {}, "not shown", "no more than"),
        ({"least_p": 0.2, "any_p": 0.2}, {}, "not shown", "of any layers (p 0.2"),
        ({"least_p": 0.2, "any_least_p": 0.2}, {}, "not shown", "too few other sets"),
        ({"clean": 5.0}, {}, "not tested", "no better than uniform guessing"),
        (
            {"p": 0.3, "heads": ("L0H1", "L0H2"), "k": 2, "alone": (0.2, 0.15)},
            {},
            "redundant",
            "without any one of them alone to 0.2 at worst",
        ),
        (
            {"p": 0.3, "heads": ("L0H1", "L0H2"), "k": 2, "alone": (2.9, 0.1)},
            {},
            "not shown",
            "without L0H1 alone to 2.9",
        ),
    ],
)
def test_what_each_outcome_is_called(own, transfer, expected, words) -> None:
    found = verdict(own, transfer)
    assert found.verdict == expected
    assert words in found.sentence
    assert found.sentence.endswith(".")


def test_the_same_answers_in_another_form(bundled_induction) -> None:
    """What followed a token before follows it again, though no longer run returns."""
    task = own_task(bundled_induction, "induction", transfer=True, n=5, max_length=13)
    assert task is not None
    assert task.name == "repeated_pairs_loss"
    for ids, at in zip(task.prompts.ids, task.positions, strict=True):
        half = (len(ids) - 1) // 2
        first, second = ids[1 : 1 + half], ids[1 + half :]
        assert sorted(first) == sorted(second)
        assert at == tuple(range(1 + half, len(ids) - 1, 2))
        for query in at:  # the logits of the first token of a pair
            assert ids[query + 1] == first[first.index(ids[query]) + 1]
    clean = Game(bundled_induction, task).clean
    assert float(clean.mean()) < task.chance - 1  # type: ignore[operator]


def test_every_task_has_another_form_or_says_that_it_has_none(bundled_induction) -> None:
    made = []
    for name in ("after_delimiters", "in_context", "repeats", "needles", *TASKS):
        metric = next((m for m in METRICS if stated_task(m) == name), None)
        if metric is None:
            continue
        with contextlib.suppress(Unanswered):  # the tokenizer splits the words
            own = own_task(bundled_induction, metric, n=2)
            other = own_task(bundled_induction, metric, transfer=True, n=2)
            assert own is not None
            assert other is not None
            assert own.hash != other.hash
            assert own.name != other.name
            made.append(name)
    assert {"repeats"} <= set(made)


def test_the_conclusion_is_the_same_everywhere(bundled_induction, tmp_path) -> None:
    found = confirm(bundled_induction, ["induction"], k=2, **SMALL, n_random=4)
    sentence = found.conclusions["induction"].sentence
    assert sentence in repr(found)
    assert set(found.to_pandas()["conclusion"]) == {sentence}
    assert found.top(1).conclusions["induction"].sentence == sentence
    again = confirmation_of(json.loads(found.to_json()))
    assert again.equals(found)
    assert confirmation_text([found]).splitlines()[-1].strip() == sentence
    page = check_page(found.wide(), [dict(found.provenance)], "interp importance verify")
    assert html.unescape(page).count(sentence) == 1
    (part,) = check_parts(found)
    assert part.part["text"] == f"induction: {sentence}"
    assert set(part.notes.values()) == {f"induction: {sentence}"}  # on the card of each head
