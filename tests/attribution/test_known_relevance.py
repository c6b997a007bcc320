"""The benchmark of known relevance: which tokens are relevant, hits by hand, and a cheap row."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.known_relevance import compiled, copying, hits, measured, relevant_tokens, trained


def test_a_token_is_relevant_if_another_one_changes_the_answer() -> None:
    def second(ids: np.ndarray) -> np.ndarray:
        return ids[:, 2]

    found = relevant_tokens(np.array([0, 4, 5, 6]), second, np.arange(1, 9))
    assert found.tolist() == [False, False, True, False]


def test_copying_depends_on_the_two_copies_and_what_follows_the_first() -> None:
    for one in copying(5, 0):
        at = one.ids.index(one.ids[-1])
        expected = {at, at + 1, len(one.ids) - 1}
        assert set(np.flatnonzero(one.relevant).tolist()) == expected


def test_programs_depend_on_the_words_that_they_read() -> None:
    for one in compiled("shift_by", 5, 0):
        row = one.target.position or 0
        assert np.flatnonzero(one.relevant).tolist() == [row - 1]
    for one in compiled("reverse", 5, 0):
        assert np.flatnonzero(one.relevant).tolist() == [len(one.ids) - (one.target.position or 0)]


def test_trained_induction_depends_on_the_same_tokens_as_copying() -> None:
    for one in trained("induction", 5, 0):
        at = one.ids.index(one.ids[-1])
        assert {at + 1, len(one.ids) - 1} <= set(np.flatnonzero(one.relevant).tolist())


def test_hits_are_counted_by_hand() -> None:
    relevant = np.array([False, True, False, True])
    assert hits(np.array([9.0, -3, 2, 1]), relevant) == (1.0, 0.5)
    assert hits(np.array([9.0, 1, 2, -3]), relevant) == (1.0, 0.5)
    assert hits(np.array([0.0, 1, 3, 2]), relevant) == (0.0, 0.5)
    assert hits(np.zeros(4), relevant)[0] == pytest.approx(2 / 3)  # ties count by their share


@pytest.mark.slow
def test_gradients_and_relevance_find_what_planted_copying_depends_on() -> None:
    methods = ["gradient_x_input", "integrated_gradients", "attn_lrp", "random_scores"]
    found = measured("planted:induction", list(copying(12, 1)), methods)
    assert found["chance"] == pytest.approx(3 / 16)
    for method in methods[:3]:
        assert found["rows"][method]["top"] == 1, method
    assert found["rows"]["random_scores"]["top"] < 0.6
