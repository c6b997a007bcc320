"""The task of the retrieval experiments: chosen by what the model answers, obeyed where given."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from beside import STORIES, needs

import interp
from interp import planted
from interp.core.errors import OptionError, PromptError
from interp.core.registry import METRICS
from interp.heads import needle
from interp.heads.experiments import _needles
from interp.heads.needle.choosing import TriedTask, best_task, try_tasks
from interp.heads.needle.sentences import FRAMES, NAMES, sentence_instances
from interp.heads.needle.text import Needle
from interp.model.random_weights import DRAWS
from interp.report.printed.scores import top_heads

IDS = str(Path(__file__).parent / "needles_of_ids.jsonl")


def made_of(table: interp.HeadTable) -> dict:
    [made] = table.provenance.values()
    return made


# --- sentences ----------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [False, True])
def test_where_a_sentence_stands_and_what_ends_the_prompt(asked: bool, bundled_induction) -> None:
    decode = bundled_induction.tokenizer.decode
    instances = sentence_instances(
        bundled_induction, asked=asked, needles=3, lengths=(20, 120), depths=(0, 0.5, 1)
    )
    names = set()
    for x in instances:
        assert len(x.prompt) == x.length
        body, name = decode(x.context[slice(*x.document)]), decode(x.answer).strip()
        names.add(name)
        assert body.strip().endswith(f" {name}.")
        assert decode(x.prompt).count(name) == 1  # one source for every copy
        haystack = decode(x.context[1 : x.document[0]] + x.context[x.document[1] :])
        assert not any(n in haystack for n in NAMES)
        assert haystack.rstrip().endswith(".")
        if asked:
            assert decode(x.question).endswith("?\nAnswer:")
        else:
            assert decode(x.question).rstrip() == body[: body.rindex(name)].rstrip()
        assert decode(x.other) not in decode(x.prompt)
    assert len(names) == 3
    # 20 tokens hold no needle in its haystack, so those prompts are as short as they can be
    short = min(x.length for x in instances)
    assert 20 < short < 120
    assert {x.length for x in instances if x.length > short + 10} == {120}


def test_needles_of_sentences_differ(bundled_induction) -> None:
    every = sentence_instances(bundled_induction, needles=120, lengths=(1,), depths=(0.5,))
    bodies = {x.context[slice(*x.document)] for x in every}
    assert len(bodies) == len(every) == len(FRAMES) * len(NAMES)
    assert not {x.prompt for x in every[:4]} & {
        x.prompt for x in sentence_instances(bundled_induction, lengths=(1,), depths=(0.5,), seed=1)
    }
    with pytest.raises(OptionError, match="from 1 to 120"):
        sentence_instances(bundled_induction, needles=121)


def test_a_file_of_needles_to_be_completed(bundled_induction, tmp_path) -> None:
    path = tmp_path / "needles.jsonl"
    lines = [
        {"haystack": "On Monday it was cold. " * 40},
        {"needle": "The code of Anna is 4 7.", "answer": "4 7"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    given, haystack = needle.read_task(path)
    [x] = needle.text_instances(bundled_induction, given, haystack, lengths=(90,), depths=(0.3,))
    assert bundled_induction.tokenizer.decode(x.question).rstrip() == " The code of Anna is"
    assert (
        bundled_induction.tokenizer.decode(x.prompt).rstrip().endswith("cold. The code of Anna is")
    )
    ids = Needle([5, 6, 7], [], [6, 7])
    [x] = needle.text_instances(
        bundled_induction, [ids], list(range(9, 90)), lengths=(40,), depths=(0,)
    )
    assert (x.question, x.answer) == ((5,), (6, 7))
    first = Needle("Anna has the code.", "", "Anna")
    with pytest.raises(PromptError, match="no beginning to complete"):
        needle.text_instances(bundled_induction, [first], haystack, lengths=(90,))


# --- the choice ---------------------------------------------------------------------------------


def test_the_task_answered_best_is_taken() -> None:
    few, more = TriedTask("a", 2, 0.9, 8), TriedTask("b", 3, 0.5, 8)
    equal = TriedTask("c", 3, 0.6, 8)
    assert best_task([few, more]) is more
    assert best_task([few, more, equal]) is equal
    assert best_task([more, TriedTask("d", 3, 0.5, 8)]) is more
    assert best_task([TriedTask("a", 0, 0.7, 8), TriedTask("b", why="no room")]) is None


def test_what_is_answered_without_the_needle_does_not_count() -> None:
    """The value stands a second time outside the needle, so the needle is not needed."""
    model = interp.load(planted.induction(vocab=40, context=64).model, name="induction")
    about = {"null": (9,), "other": (8,), "needle": 0, "depth": 0.0, "steps": 1}

    def asked(*again: int) -> needle.Instance:
        context = (0, 5, 6, *range(10, 20), *again, *range(20, 25))
        return needle.Instance(
            context, (5,), span=(2, 3), document=(1, 3), length=len(context) + 1, **about
        )

    tasks = {"once": lambda: [asked()], "twice": lambda: [asked(5, 6)]}
    once, twice = try_tasks(model, tasks)
    assert (once.answered, once.right, once.n) == (1, 1.0, 1)
    assert (twice.answered, twice.right, twice.n) == (0, 1.0, 1)


def test_a_task_without_room_is_not_tried() -> None:
    model = interp.load(planted.induction(vocab=40, context=64).model, name="induction")
    tasks = {"ids": lambda: needle.ids_instances(model, lengths=(8,), answer=6)}
    [told] = try_tasks(model, tasks)
    assert "not tried" in str(told)
    assert "fewer than the needle's 7" in told.why


def test_a_model_that_answers_nothing_gets_no_scores(bundled_one_layer) -> None:
    table = interp.score(bundled_one_layer, "retrieval")
    frame = table.to_pandas()
    assert (frame["n"] == 0).all()
    assert frame[["score", "sem", "null"]].isna().all(axis=None)
    assert len(table.top(3)) == 0
    why = made_of(table)["headline"]
    assert "answers no needle (ids 0 of 8, completion 0 of 8, question 0 of 8)" in why
    assert why in top_heads(table, 3)
    # attention alone can still be asked for, and says what it is
    given = interp.score(bundled_one_layer, "retrieval:task=ids", null="none")
    assert np.isfinite(given.to_pandas()["score"]).all()
    assert "answers 0 of 48 instances; the scores show attention only" in made_of(given)["headline"]


def test_a_given_task_is_obeyed_and_the_choice_is_reported(bundled_induction) -> None:
    chosen = interp.score(bundled_induction, "retrieval", null="none")
    assert made_of(chosen)["headline"].startswith("task ids, chosen as the one answered best")
    given = interp.score(bundled_induction, "retrieval:task=completion,needles=2", null="none")
    assert made_of(given)["headline"].startswith("task completion; the model answers")
    assert "tasks:" not in " ".join(made_of(given)["notes"])
    assert made_of(chosen)["headline"] in top_heads(chosen, 3)


def test_the_null_is_run_with_the_task_of_the_scores(bundled_induction, monkeypatch) -> None:
    asked = []
    build = _needles.instances_of
    monkeypatch.setattr(_needles, "chosen_task", lambda *a: (IDS, [TriedTask("x", 1, 1, 1)]))
    monkeypatch.setattr(
        _needles,
        "instances_of",
        lambda m, seed, given, **k: asked.append(given.task) or build(m, seed, given, **k),
    )
    table = METRICS.load("retrieval")(bundled_induction, needles=2)
    assert asked == [IDS] * (1 + DRAWS)  # the scores, and each draw of random weights
    assert np.isfinite(table.to_pandas()["null"]).all()


@pytest.mark.slow
def test_questions_are_asked_in_the_task_answered_best(
    bundled_induction, bundled_one_layer
) -> None:
    assert (
        "task ids, chosen" in made_of(interp.score(bundled_induction, "qr_retrieval"))["headline"]
    )
    none = made_of(interp.score(bundled_one_layer, "qr_retrieval:needles=2"))["headline"]
    assert none.startswith("task ids; the model answers none")


@pytest.mark.slow
@needs(STORIES)
def test_the_copy_heads_of_a_story_model_are_found() -> None:
    """Needles of ids are answered 0 times in 8 and score no head above 0.12."""
    model = interp.load(str(STORIES))
    table = interp.score(model, "retrieval", null="none")
    told = made_of(table)
    assert told["headline"].startswith("task completion, chosen")
    assert "ids 0 of 8" in " ".join(told["notes"])
    scores = {(int(r.layer), int(r.head)): r.score for r in table.to_pandas().itertuples()}
    order = sorted(scores, key=lambda h: -scores[h])
    for head in ((7, 1), (7, 15), (4, 13)):
        assert order.index(head) < 12
        assert scores[head] > 0.4
    old = interp.score(model, "retrieval:task=ids", null="none").to_pandas()
    assert old["score"].max() < 0.2
