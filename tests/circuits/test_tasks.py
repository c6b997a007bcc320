"""Contrast tasks: lengths, roles, answers and counterfactuals, and tokenizers that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import zoo
from beside import STORIES, real

import interp
from interp.circuits.tasks import TASKS, make_contrast
from interp.circuits.tasks import ioi_pairs as ioi
from interp.circuits.tasks import subject_verb_pairs as verbs
from interp.core.errors import OptionError, PromptError, UnknownName


def words(model, ids):
    return [model.tokenizer.decode([t]).strip() for t in ids]


PLAIN = [t for t, about in TASKS.items() if not about.model and not t.startswith("stories:")]


@pytest.mark.parametrize("name", PLAIN)
def test_pairs_are_of_one_length_and_repeat_with_the_seed(worded_gpt2, name) -> None:
    a, b, c = (make_contrast(worded_gpt2, name, n=12, seed=s) for s in (0, 0, 1))
    assert len(a) == 12
    assert a.clean.ids == b.clean.ids != c.clean.ids
    assert set(a.roles[0]) == set(TASKS[name].roles)
    for clean, corrupted, role in zip(a.clean.ids, a.corrupted.ids, a.roles, strict=True):
        assert len(clean) == len(corrupted)
        assert clean != corrupted
        assert role["end"] == len(clean) - 1
        assert all(0 <= at < len(clean) for at in role.values())


def test_who_is_given_to(worded_gpt2) -> None:
    task = make_contrast(worded_gpt2, "ioi", n=60)
    kinds = set()
    for i, (clean, role) in enumerate(zip(task.clean.ids, task.roles, strict=True)):
        told = words(worded_gpt2, clean)
        giver, other = told[role["S2"]], told[role["IO"]]
        assert told[role["S1"]] == giver != other
        assert role["S1"] < role["S2"]
        assert role["S1+1"] == role["S1"] + 1
        assert {giver, other} <= set(ioi.NAMES)
        third = words(worded_gpt2, task.corrupted.ids[i])
        differs = [j for j, (x, y) in enumerate(zip(told, third, strict=True)) if x != y]
        assert differs == [role["S2"]]
        assert third[role["S2"]] not in (giver, other)
        # the task is the logit of the other less that of the giver
        logits = torch.zeros(1, worded_gpt2.d_vocab)
        logits[0, worded_gpt2.tokenizer(f" {other}")["input_ids"][-1]] = 3.0
        logits[0, worded_gpt2.tokenizer(f" {giver}")["input_ids"][-1]] = 1.0
        assert float(task.task.values(logits[:, list(task.task.vocabulary)], [i])) == 2.0
        kinds.add(task.templates[i].split()[0])
    assert kinds == {"ABBA", "BABA"}
    assert len(set(task.templates)) >= 8


def test_which_years_are_later(worded_gpt2) -> None:
    task = make_contrast(worded_gpt2, "greater_than", n=10)
    for i, (clean, role) in enumerate(zip(task.clean.ids, task.roles, strict=True)):
        year = int(words(worded_gpt2, clean)[role["YY"]])
        assert words(worded_gpt2, task.corrupted.ids[i])[role["YY"]] == "01"
        for said, want in ((year + 1, 1.0), (year, -1.0), (2, -1.0)):
            logits = torch.full((1, worded_gpt2.d_vocab), -50.0)
            logits[0, worded_gpt2.tokenizer(f"{said:02d}")["input_ids"][0]] = 50.0
            assert float(task.task.values(logits, [i])) == pytest.approx(want)


def test_subjects_and_distractors_differ_in_number(worded_gpt2) -> None:
    task = make_contrast(worded_gpt2, "subject_verb", n=12)
    plurals = {b for _, b in (*verbs.NOUNS, *verbs.THINGS)}
    for i, (clean, role) in enumerate(zip(task.clean.ids, task.roles, strict=True)):
        told, other = words(worded_gpt2, clean), words(worded_gpt2, task.corrupted.ids[i])
        plural = told[role["subject"]] in plurals
        assert plural == (i % 2 == 1)
        assert (told[role["distractor"]] in plurals) != plural
        assert (other[role["subject"]] in plurals) != plural
        logits = torch.zeros(1, worded_gpt2.d_vocab)
        for a, b in verbs.VERBS:
            logits[0, worded_gpt2.tokenizer(f" {b if plural else a}")["input_ids"][0]] = 1.0
        assert float(task.task.values(logits[:, list(task.task.vocabulary)], [i])) == 1.0


def test_induction_needs_no_words() -> None:
    model = interp.load("planted:induction")
    task = make_contrast(model, "induction", n=20)
    clean, corrupted = task.values(model)
    assert (clean > 3).all()
    assert abs(corrupted).max() < 1
    for ids, other, role in zip(task.clean.ids, task.corrupted.ids, task.roles, strict=True):
        assert ids[role["first"]] == ids[role["end"]]
        assert other[role["first"]] not in (other[role["end"]], ids[role["first"]])
        assert ids.count(ids[role["end"]]) == 2


def test_tokenizers_that_do_not_fit(worded_gpt2) -> None:
    bare = interp.load("planted:induction")
    with pytest.raises(PromptError, match="has no tokenizer"):
        make_contrast(bare, "ioi")
    small = interp.load("bundled:induction")
    with pytest.raises(PromptError, match=r"splits .* 24 of 24 names, such as Anna"):
        make_contrast(small, "ioi")
    with pytest.raises(PromptError, match="into two and two digits"):
        make_contrast(small, "greater_than")
    with pytest.raises(PromptError, match=r"splits too many words|splits .* verbs"):
        make_contrast(small, "subject_verb")
    with pytest.raises(UnknownName, match="did you mean ioi"):
        make_contrast(worded_gpt2, "ioj")
    with pytest.raises(OptionError, match="n must be at least 1, not 0"):
        make_contrast(worded_gpt2, "ioi", n=0)
    short = interp.load(zoo.FAMILIES["gpt2"].model("sdpa"))
    assert len(make_contrast(short, "induction", n=3)) == 3


@pytest.mark.parametrize(
    ("source", "name"), [("bundled:induction", "induction"), real(STORIES.name, "ioi")]
)
def test_a_trained_model_does_some_of_it(source: str, name: str) -> None:
    model = interp.load(source)
    task = make_contrast(model, name, n=64)
    clean, corrupted = task.values(model)
    assert (clean > 0).mean() > 0.6
    mean, sem = task.gap(model)
    assert mean > 2 * sem
    assert np.abs(corrupted.mean()) < 0.5 * clean.mean()
