"""The next item of an ordered list: what each pair shows and asks."""

from __future__ import annotations

import pytest
import torch
from circuits.counting import counting

import interp
from interp.circuits.named._ordered import known_lists
from interp.circuits.tasks import make_contrast
from interp.circuits.tasks.next_items_pairs import LEAST, SHOWN


@pytest.fixture(scope="module")
def list_model() -> interp.Model:
    return counting()


@pytest.mark.parametrize("seed", range(4))
def test_the_two_answers_of_a_pair(list_model, seed) -> None:
    """The right one follows what is shown; the wrong one is in neither prompt."""
    lists = known_lists(list_model, LEAST)
    task = make_contrast(list_model, "next_items", n=64, seed=seed)
    assert len(set(task.templates)) == len(lists) >= 4
    size = len(task.task.vocabulary)
    for i, name in enumerate(task.templates):
        items, follows = lists[name]
        after = {items[a]: items[b] for a, b in follows}
        read = task.task.values(torch.eye(size), [i] * size).tolist()
        right, wrong = (task.task.vocabulary[read.index(x)] for x in (1.0, -1.0))
        assert sum(map(abs, read)) == 2  # a difference of two logits
        clean, corrupted = task.clean.ids[i][-SHOWN:], task.corrupted.ids[i][-SHOWN:]
        assert [after[x] for x in clean] == [*clean[1:], right]
        assert set(corrupted) <= set(items) - {*clean, right}
        assert len(set(corrupted)) == SHOWN
        assert wrong in set(items) - {*clean, right, *corrupted}
