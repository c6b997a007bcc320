"""Heads for retrieval are checked in the task of their scores, on needles beside those scored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from beside import STORIES, needs

import interp
from interp.causal.game.game import Game
from interp.causal.task import Task
from interp.circuits.head_checks import confirm
from interp.circuits.head_tasks import own_task
from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.heads.causal_check.needles import Unanswered, needle_task
from interp.heads.experiments._needles import instances_of
from interp.heads.needle.instance import NeedleOptions

IDS = str(Path(__file__).parents[1] / "experiments" / "needles_of_ids.jsonl")
FEW = "needles=2,lengths=1,depths=2"
METRICS = ["retrieval", "qr_retrieval"]
QUICK: dict[str, Any] = {"k": 1, "n": 3, "n_random": 2}


@pytest.fixture(scope="module")
def stories_model() -> interp.Model:
    return interp.load(str(STORIES))


def scored(model: interp.Model, *metrics: str, seed: int = 0) -> interp.HeadTable:
    return interp.score(model, list(metrics), null="none", seed=seed)


def clean(model: interp.Model, task: Task) -> float:
    """The loss of the whole model."""
    game = Game(model, task)
    return float(game.values(torch.ones(1, len(game), dtype=torch.double)).mean())


def ids_of(task: Task) -> tuple[tuple[int, ...], ...]:
    assert isinstance(task.prompts, Prompts)
    return task.prompts.ids


def bodies(model: interp.Model, task: Task, needles: int, seed: int, name: str) -> tuple[set, set]:
    """The needles scored, and those of the task, as they stand in its prompts."""
    first = instances_of(model, seed, NeedleOptions(name, needles, 48, 48, 1, 2, 4))
    every = instances_of(model, seed, NeedleOptions(name, needles + len(task), 48, 48, 1, 1, 4))
    before = {x.context[slice(*x.document)] for x in first}
    after = [x.context[slice(*x.document)] for x in every if x.needle >= needles]
    for ids, body in zip(ids_of(task), after, strict=True):
        assert any(ids[i : i + len(body)] == body for i in range(len(ids)))
    return before, set(after)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", [0, 3])
def test_needles_of_the_check_are_others_than_those_scored(bundled_induction, metric, seed) -> None:
    task = own_task(bundled_induction, metric, n=4, seed=seed)
    assert task is not None
    assert task.name == "needle_loss (ids)"
    before, after = bodies(bundled_induction, task, 8, seed, "ids")
    assert len(after) == 4
    assert not before & after


def test_a_table_says_which_task_its_heads_were_scored_on(bundled_induction) -> None:
    """The option that was given, and what "auto" became; with the seed of the scores."""
    table = scored(
        bundled_induction, f"retrieval:{FEW}", f"qr_retrieval:task=completion,{FEW}", seed=3
    )
    made = {metric: about for (_, metric), about in table.provenance.items()}
    auto, given = made
    assert made[auto]["options"]["task"] == "auto"
    assert made[auto]["settled"] == {"task": "ids"}
    found = confirm(bundled_induction, table.where(metric=auto), **QUICK)
    check = found.of(auto, "own")
    assert check.task == "needle_loss (ids)"
    assert found.provenance["tasks"][check.task]["n_prompts"] == 3
    task = needle_task(bundled_induction, n=3, scored={"task": "ids", "needles": 2, "seed": 3})
    assert check.clean == pytest.approx(clean(bundled_induction, task), rel=1e-5)
    # the option is obeyed, also where the model would have answered another task
    other = confirm(bundled_induction, table.where(metric=given), **QUICK)
    assert [c.purpose for c in other] == ["plain"]
    assert "answers none of 3 needles of the task completion" in other.notes[given]


def test_a_model_that_answers_nothing_has_no_heads_to_check(bundled_one_layer) -> None:
    with pytest.raises(OptionError, match="no scores: the model answers no needle"):
        confirm(bundled_one_layer, scored(bundled_one_layer, f"retrieval:{FEW}"), **QUICK)
    table = scored(bundled_one_layer, f"retrieval:{FEW}", f"qr_retrieval:{FEW}")
    found = confirm(bundled_one_layer, table, **QUICK)
    assert [(c.metric.partition(":")[0], c.purpose) for c in found] == [("qr_retrieval", "plain")]
    first, second = found.notes.values()
    assert first.startswith("no scores: the model answers no needle")
    assert second == (
        "not checked on its own task: the model answers none of 3 needles of the task ids beside "
        "those scored, so no head can be necessary"
    )
    assert first in repr(found)
    assert json.loads(found.to_json())["provenance"]["notes"] == dict(found.notes)
    with pytest.raises(Unanswered, match=r"the model answers no needle \(ids 0 of 8"):
        needle_task(bundled_one_layer)


def test_a_file_lends_the_needles_that_were_not_scored(bundled_induction) -> None:
    lines = [x for x in Path(IDS).read_text().splitlines() if "needle" in json.loads(x)]
    task = needle_task(bundled_induction, scored={"task": IDS, "needles": 1})
    assert task.name == "needle_loss (needles_of_ids.jsonl)"
    assert len(task) == len(lines) - 1
    first, *others = [tuple(json.loads(x)["needle"]) for x in lines]
    read = [" ".join(map(str, ids)) for ids in ids_of(task)]
    assert not any(" ".join(map(str, first)) in ids for ids in read)
    assert all(" ".join(map(str, n)) in ids for n, ids in zip(others, read, strict=True))
    with pytest.raises(Unanswered, match=f"all {len(lines)} needles .* were scored"):
        needle_task(bundled_induction, scored={"task": IDS, "needles": len(lines)})


@needs(STORIES)
def test_sentences_that_the_model_completes_are_what_its_heads_are_checked_on(
    stories_model,
) -> None:
    """Random ids, which it was asked before, it does not repeat: 14 nats where chance is 9.5."""
    task = own_task(stories_model, "retrieval", n=6)
    assert task is not None
    assert task.name == "needle_loss (completion)"
    before, after = bodies(stories_model, task, 8, 0, "completion")
    assert not before & after
    assert clean(stories_model, task) < 3
    with pytest.raises(Unanswered, match="none of 6 needles of the task ids"):
        own_task(stories_model, "retrieval", n=6, scored={"task": "ids"})


@needs(STORIES)
@pytest.mark.slow
def test_the_best_retrieval_heads_of_a_language_model_matter_for_it(stories_model) -> None:
    found = confirm(stories_model, scored(stories_model, "retrieval"), k=2, n_random=20)
    own, plain = found.of("retrieval", "own"), found.of("retrieval", "plain")
    assert own.ratio > 2
    assert own.p == own.least_p
    assert plain.ratio == pytest.approx(1, abs=0.05)
