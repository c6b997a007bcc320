"""The whole search on models: planted heads end to end, controls, results that come back."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from syntax.made import random_bank, sentence
from syntax.small_bert import save_bert

import interp
from interp.core.errors import PromptError, StoreError, UnknownName
from interp.syntax import dependency_trees
from interp.syntax.result import SPANNING, TreeScores
from interp.syntax.treebank import Treebank


def chains(n, seed=0):
    """Sentences in which every word hangs from the one before it; some do so at a distance."""
    rng = np.random.default_rng(seed)
    out = []
    for i in range(n):
        size = int(rng.integers(5, 11))
        heads = [-1, *range(size - 1)]
        relations = ["root", *(["flat"] * (size - 2)), "far"]
        heads[-1] = 0
        words = [f"v{int(x)}" for x in rng.integers(0, 40, size)]
        out.append(sentence(tuple(heads), tuple(relations), words, line=i))
    return Treebank("chains", tuple(out), "1" * 64)


@pytest.fixture(scope="module")
def planted_trees(numbered_bystander) -> TreeScores:
    return dependency_trees(numbered_bystander, chains(60))


def test_the_planted_head_is_found_end_to_end(planted_trees) -> None:
    flat = planted_trees.relation("flat")
    assert (flat.head, flat.direction, flat.accuracy) == ("L0H3", "row", 1.0)
    assert (flat.offset, flat.baseline) == (-1, 1.0)  # and so does a fixed offset
    assert flat.gain == 0.0
    assert flat.p == 1.0
    assert flat.random < 0.7
    assert flat.shuffled < 0.5
    assert planted_trees.relation("far").accuracy < 0.7
    best = planted_trees.best()
    chain = next(
        t
        for t in planted_trees.trees
        if t.method == "right-branching: head is the previous word" and t.punct
    )
    assert (best.heads, best.uuas) == (("L0H3",), chain.uuas)


def test_halves_are_chosen_from_and_reported_on(planted_trees) -> None:
    assert (planted_trees.counts["train_sentences"], planted_trees.counts["test_sentences"]) == (
        30,
        30,
    )
    assert any("first half of chains" in note for note in planted_trees.notes)
    assert any("each word attends only to earlier words" in note for note in planted_trees.notes)


def test_two_files_are_the_two_parts(numbered_bystander) -> None:
    found = dependency_trees(numbered_bystander, chains(10, 1), train=chains(20, 2), controls=False)
    assert (found.counts["train_sentences"], found.counts["test_sentences"]) == (20, 10)
    assert found.provenance["train"]["n"] == 20
    assert math.isnan(found.relation("flat").random)
    assert not [t for t in found.trees if "random" in t.method]


def test_every_way_to_make_trees_is_there_with_and_without_punctuation(planted_trees) -> None:
    methods = [(t.method, t.punct) for t in planted_trees.trees]
    assert len(set(methods)) == len(methods) == 20
    assert {punct for _, punct in methods} == {True, False}
    for t in planted_trees.trees:
        assert 0 <= t.uuas_interval[0] <= t.uuas <= t.uuas_interval[1] <= 1
        assert math.isnan(t.uas) or t.uas_interval[0] <= t.uas <= t.uas_interval[1]


def test_the_grid_has_every_head(planted_trees, numbered_bystander) -> None:
    (grid,) = planted_trees.by_head.values()
    assert [len(row) for row in grid] == [numbered_bystander.n_heads] * numbered_bystander.n_layers
    table = planted_trees.table()
    assert table.top(1).to_pandas()[["layer", "head"]].to_numpy().tolist() == [[0, 3]]
    assert table.matrix("uuas").tolist() == [list(row) for row in grid]


def test_drawn_sentences_hold_both_trees(planted_trees) -> None:
    for d in planted_trees.drawn:
        gold = {frozenset((h, w)) for w, h in enumerate(d.heads) if h >= 0}
        assert len(d.predicted) == len(d.words) - 1
        assert d.found == len(gold & {frozenset(e) for e in d.predicted})


def test_a_result_comes_back_from_json(planted_trees) -> None:
    text = json.dumps(planted_trees.to_dict(), allow_nan=False)
    back = TreeScores.from_dict(json.loads(text))
    assert json.dumps(back.to_dict()) == text
    assert back.relations == planted_trees.relations
    assert back.drawn == planted_trees.drawn
    with pytest.raises(StoreError, match="not a result of a search for trees"):
        TreeScores.from_dict({"format": "x"})
    broken = json.loads(text)
    del broken["relations"][0]["n"]
    with pytest.raises(StoreError, match="damaged"):
        TreeScores.from_dict(broken)


def test_it_shows_itself(planted_trees, tmp_path) -> None:
    frame = planted_trees.to_pandas()
    assert frame["relation"].tolist() == ["flat", "far"]
    assert (frame["low"] <= frame["accuracy"]).all()
    assert len(planted_trees.trees_to_pandas()) == 20
    assert "L0H3" in planted_trees._repr_html_()
    assert list(planted_trees.plot().data[0].x) == ["flat", "far"]
    planted_trees.save_html(tmp_path / "t.html")
    with pytest.raises(UnknownName, match="did you mean flat"):
        planted_trees.relation("flatt")


def test_the_same_call_gives_the_same_result(numbered_bystander, planted_trees) -> None:
    again = dependency_trees(numbered_bystander, chains(60))
    assert json.dumps(again.to_dict()) == json.dumps(planted_trees.to_dict())


def test_a_random_encoder_finds_no_more_than_chance(tmp_path) -> None:
    bank = random_bank(120, seed=1, low=8, high=9)
    model = interp.load(save_bert(tmp_path, [f"v{i}" for i in range(40)]))
    found = dependency_trees(model, bank)
    for r in found.relations:
        assert abs(r.accuracy - 1 / 7) < 0.12
        assert r.p > 0.01
    for t in found.trees:
        if not t.baseline and "probe" not in t.method:
            assert abs(t.uuas - 2 / 8) < 0.06


def test_too_few_sentences(numbered_bystander) -> None:
    with pytest.raises(PromptError, match="give two or more, or a second file"):
        dependency_trees(numbered_bystander, chains(1))


def test_the_best_head_is_chosen_with_punctuation_as_asked(planted_trees) -> None:
    assert planted_trees.best(punct=False).punct is False
    assert planted_trees.best().method == SPANNING
