"""Documents of prompts that tell who has a thing: one sentence is the source of the answer."""

from __future__ import annotations

import pytest

import interp
from interp.circuits.tasks import make_contrast
from interp.text.chains.chain import Chain
from interp.text.context import judge_sources
from interp.text.context.documents import told_documents


@pytest.fixture(scope="module")
def told_stories() -> tuple[interp.Model, list[Chain]]:
    model = interp.load("bundled:stories")
    pairs = make_contrast(model, "stories:owner", n=16)
    places = [roles["receiver"] for roles in pairs.roles]
    return model, told_documents(model, pairs.clean.ids, places)


def test_one_sentence_says_to_whom_the_thing_went_that_is_asked_for(told_stories) -> None:
    model, documents = told_stories
    assert {one.sources[0] == len(one.texts) - 1 for one in documents} == {True, False}
    for one in documents:
        [source] = one.sources
        question, answer = map(model.tokenizer.decode, (one.question, one.answer))
        assert answer.strip() in one.texts[source], one.texts
        assert [i for i, text in enumerate(one.texts) if answer.strip() in text][-1] == source
        things = {word for word in one.texts[source].split() if len(word) > 2} & {*question.split()}
        others = " ".join(one.texts[:3] if source > 2 else one.texts[3:])
        assert not (things - {"the"}) & {*others.split()}, "two things of one name"


def test_leaving_sentences_out_finds_the_source_and_a_random_order_does_not(told_stories) -> None:
    model, documents = told_stories
    judged = judge_sources(model, documents, methods=("ablations",), n_ablations=24)
    found = judged.to_pandas().set_index("metric").loc["ablations"]
    assert found["score"] >= 0.75
    assert found["low"] > found["null"]
