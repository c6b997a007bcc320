"""One sign for every method and measure: positive where the task goes better with the head."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from interp import causal
from interp.causal.comparison.questions import METHODS
from interp.causal.methods import importances
from interp.causal.task import Task
from interp.core.head import Head
from interp.core.order import SIGN
from interp.core.prompts import Prompts
from interp.model.locate.probe import probe
from interp.planted import build
from interp.report.printed.importance import importance_text

HEADS = ["L0H0", "L0H3", "L1H1", "L1H3"]
SIGNED = [name for name, question in METHODS.items() if question.signed]


@cache
def planted():
    built = build("induction", vocab=24, context=32)
    working = [str(Head(*built.roles[role][0])) for role in ("induction", "previous_token")]
    return probe(built.model, "planted:induction"), working


def flipped(task: Task, name: str) -> Task:
    """The same task with its value times -1, and the other direction."""
    assert task.read_rows is not None
    read = task.read_rows
    return Task(
        name,
        task.prompts,
        task.positions,
        task.unit,
        not task.higher_is_better,
        lambda logits, rows, clean: -read(logits, rows, clean),
        corrupted=task.corrupted,
        detail="minus",
    )


@cache
def scored(higher_is_better: bool):
    model, _ = planted()
    task = causal.repeats_task(model, n=3, max_length=8)
    assert isinstance(task.prompts, Prompts)
    ids = [list(reversed(p)) for p in task.prompts.ids]
    task = task.with_corrupted(ids, model)
    if higher_is_better:
        task = flipped(task, task.name)
    names = list(METHODS)
    return importances(model, task, names, heads=HEADS)


@pytest.mark.parametrize("name", METHODS)
def test_a_score_is_the_same_for_a_loss_and_for_minus_the_loss(name: str) -> None:
    low, high = scored(False)[name], scored(True)[name]
    size = np.abs(low.score).max()
    np.testing.assert_allclose(high.per_prompt, low.per_prompt, atol=1e-6 * size)
    np.testing.assert_allclose(high.table.to_pandas()["score"], low.table.to_pandas()["score"])
    for note in ("v_all_minus_v_none", "completeness_residual", "efficiency_gap"):
        if note in low.notes:
            assert high.notes[note] == pytest.approx(low.notes[note], abs=1e-6 * size)


@pytest.mark.parametrize("name", [n for n in SIGNED if n != "all_but_one"])
def test_the_heads_that_do_the_work_are_positive(name: str) -> None:
    _, working = planted()
    for found in (scored(False)[name], scored(True)[name]):
        score = dict(zip(found.players.labels, found.score, strict=True))
        if name in ("gate_gradient", "patching_gradient"):  # saturated: hardly any gradient
            assert max(score[label] for label in working) > 0
            assert found.top(1).players.labels[0] in working
        else:
            assert min(score[label] for label in working) > 0.1
        assert set(found.top(2).players.labels) == set(working) or "grad" in found.metric
        np.testing.assert_array_equal(found.helps(), found.score)
        assert found.provenance["sign"] == SIGN
        assert found.table.to_pandas()["unit"].str.endswith("(+ helps)").all()


def test_a_head_alone_in_its_layer_is_at_most_as_good_as_the_layer() -> None:
    found = scored(False)["all_but_one"]
    assert found.score.max() < 1e-3
    assert found.score.min() < -0.1


def test_shares_add_up_to_what_all_heads_do_together() -> None:
    for higher in (False, True):
        found = scored(higher)["shapley"]
        assert found.notes["v_all_minus_v_none"] > 1
        assert found.score.sum() == pytest.approx(found.notes["v_all_minus_v_none"])


def test_pairs_that_need_each_other_are_positive_for_every_measure() -> None:
    model, working = planted()
    task = causal.repeats_task(model, n=3, max_length=8)
    for each in (task, flipped(task, "minus")):
        found = causal.interactions(model, each, among=working, heads=HEADS)
        assert found.score[0] > 0.5
        assert found.provenance["sign"].startswith("positive: the two depend on")


def test_every_block_says_the_sign_once() -> None:
    text = importance_text([scored(False)[n] for n in ("ablation", "shapley")], top=2)
    assert text.count(SIGN) == 1
    assert "lost without it" in text
    assert "contributed" in text
    assert "-" not in text.split("shapley")[1].split("\n")[0].replace("planted:", "")
    magnitudes = importance_text([scored(False)["michel_batch_abs"]], top=2)
    assert SIGN not in magnitudes
    assert "either way" in magnitudes


def test_a_notebook_shows_the_heads_that_matter_most_first() -> None:
    found = scored(False)["ablation"]
    labels = list(found.top(4).players.labels)
    assert labels != list(found.players.labels)
    html = found._repr_html_()
    places = [html.index(f">{label}<") for label in labels]
    assert places == sorted(places)
    assert found.to_pandas()["player"].tolist() == list(found.players.labels)
    assert found.shown()["player"].tolist() == labels
