"""Families of retrieval tasks: their sources and answers, and the planted heads that find them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import interp
from interp import planted
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.heads import needle
from interp.heads.experiments import _needles
from interp.heads.needle.copying import _chance
from interp.heads.needle.families import FAMILIES

LENGTH = 200


@pytest.fixture(scope="module")
def retriever():
    made = planted.build("retriever", context=1024)
    return made, interp.load(made.model, name="retriever")


def made_of(model: interp.Model, family: str, **options) -> list[needle.Instance]:
    options = {"needles": 3, "lengths": [LENGTH], "depths": [0.0, 1.0]} | options
    return needle.family_instances(model, family, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_hold_each_answer_where_they_say(retriever, family: str) -> None:
    _, model = retriever
    found = made_of(model, family)
    assert len(found) == 6
    assert found == made_of(model, family)
    assert found != made_of(model, family, seed=1)
    for x in found:
        assert len(x.prompt) == x.length == LENGTH
        assert len(set(x.answer)) == len(x.answer) == 4
        wanted = set(x.answer)
        at = {i for i, token in enumerate(x.context) if token in wanted}
        if family == "variable_tracking":  # a variable stands where it is set and is passed on
            assert len(at) == 7
            assert set(x.sources) < at
            steps = [*x.question, *x.answer]
            for before, after, i in zip(steps, steps[1:], x.sources, strict=False):
                assert (x.context[i - 1], x.context[i]) == (before, after)
        else:
            assert at == set(x.sources)
        if family == "many_values":
            assert all(x.context[i - 1] == x.question[0] for i in x.sources)
            assert x.context.count(x.question[0]) == 4
        if family == "many_keys":
            assert x.context.count(x.question[0]) == 1
            assert x.context[x.sources[0] - 1] == x.question[0]
        if family == "common_words":
            _, counts = np.unique(x.context, return_counts=True)
            assert sorted(counts)[-4] > 3 * sorted(counts)[-5]
            assert x.question[0] not in x.context
        assert x.null[0] not in x.context
        assert x.other[0] not in x.context


@pytest.mark.parametrize("family", ["single_key", "many_keys"])
def test_prompts_leave_positions_for_the_answer(family: str) -> None:
    model = interp.load(planted.build("retriever", context=64).model, name="short")
    assert {x.length for x in made_of(model, family, lengths=[50, 80, 90])} == {50, 61}


def test_depths_of_many_keys_are_from_first_to_last(retriever) -> None:
    _, model = retriever
    first, last = made_of(model, "many_keys", needles=1)
    assert first.sources[0] < 10
    assert last.sources[-1] == len(last.context) - 1


@pytest.mark.parametrize("family", ["single_key", "many_keys", "many_values"])
def test_the_planted_induction_head_copies_the_answer(retriever, family: str) -> None:
    made, model = retriever
    found = needle.copy_paste(model, made_of(model, family))
    assert float(found.right.mean()) == 1
    scores = found.score()
    [induction] = made.roles["induction"]
    assert scores.pop(induction) == 1
    assert max(scores.values()) < 0.3
    assert float(found.chance.mean()) < 0.05


def test_variables_need_more_than_induction(retriever) -> None:
    """After a name the head attends to what follows both of its places; one of these is right."""
    made, model = retriever
    found = needle.copy_paste(model, made_of(model, "variable_tracking"))
    assert 0.2 < float(found.right.mean()) < 0.8
    [induction] = made.roles["induction"]
    assert 0.2 < found.score()[induction] < 0.9


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_that_writes_is_the_one_that_losing_its_cache_costs(
    retriever, family: str
) -> None:
    made, model = retriever
    role = "counting" if family == "common_words" else "induction"
    [head] = made.roles[role]
    sizes = f"min_length={LENGTH},max_length={LENGTH},lengths=1,needles=3,depths=1"
    rows = interp.score(model, f"written_retrieval:task={family},{sizes}").to_pandas()
    places = zip(rows["layer"], rows["head"], strict=True)
    written = dict(zip(places, rows["score"] - rows["null"], strict=True))
    assert max(written, key=written.__getitem__) == head
    assert written[head] > 1
    assert max(x for other, x in written.items() if other != head) < 0.5
    cut = f"cache_loss:task={family},n=3,max_length={LENGTH}"
    losses = interp.score(model, cut, null="none").to_pandas()
    places = zip(losses["layer"], losses["head"], strict=True)
    lost = dict(zip(places, losses["score"], strict=True))
    assert lost[head] > 0.9
    assert max(lost.values()) == lost[head]


def test_random_heads_find_no_family() -> None:
    model = interp.load("planted:noise")
    for family in _needles.COPIED:
        found = needle.copy_paste(model, made_of(model, family))
        assert float(found.right.mean()) < 0.4, family
        assert max(found.score().values()) < 0.3, family


def test_chance_of_answers_at_once_is_that_of_draws(retriever) -> None:
    _, model = retriever
    [x] = made_of(model, "many_values", needles=1, depths=[0.5], lengths=[80])
    draw = np.random.default_rng(0)
    drawn = [draw.choice(x.length, len(x.sources), replace=False) for _ in range(20000)]
    hits = [len({x.context[i] for i in some if i in x.sources}) / 4 for some in drawn]
    assert abs(np.mean(hits) - _chance(x)) < 4 * np.std(hits) / math.sqrt(20000)


def test_top_keys_of_answers_at_once_are_counted_by_hand(retriever) -> None:
    made, model = retriever
    found = made_of(model, "many_values", needles=2, depths=[0.5])
    scores = needle.copy_paste(model, found)
    for trial, x in enumerate(found):
        patterns = model.capture([x.prompt], ["pattern"])
        for site, values in scores.values.items():
            if site.layer == 0:
                continue  # heads with equal weights: which are the largest is open
            row = patterns["pattern", site.layer][0, made.roles["induction"][0][1], -1]
            top = torch.topk(row, 4).indices.tolist()
            share = len({x.context[i] for i in top if i in x.sources}) / 4
            assert float(values[trial, made.roles["induction"][0][1]]) == share


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: made_of(m, "many_words"), UnknownName, "many_words"),
        (lambda m: made_of(m, "many_keys", lengths=[20]), PromptError, "too short for many_keys"),
        (lambda m: made_of(m, "many_keys", answer=40), PromptError, "use a smaller answer"),
        (lambda m: made_of(m, "many_keys", needles=0), OptionError, "at least 1"),
        (
            lambda m: interp.score(m, "retrieval:task=common_words"),
            OptionError,
            "use written_retrieval",
        ),
        (
            lambda m: interp.score(m, "qr_retrieval:task=many_values"),
            OptionError,
            "only single_key, many_keys",
        ),
        (
            lambda m: needle.copy_paste(m, made_of(m, "many_values"), authors=True),
            OptionError,
            "in any order",
        ),
    ],
)
def test_what_cannot_be_is_refused(retriever, call, error, words) -> None:
    with pytest.raises(error, match=words):
        call(retriever[1])
