"""Choosing a head per relation: planted heads, chance, intervals, and honest choosing."""

from __future__ import annotations

import numpy as np
import pytest
from syntax.made import attention, gold, noise, only, previous, random_bank, sentence, turned

from interp.syntax.gold import DIRECTIONS, Gold, argmax_words, directed, hits_of
from interp.syntax.relations import best_offset, ensemble_hits, per_sentence, relations
from interp.syntax.treebank import Treebank

ONE, TWO = random_bank(150, seed=1), random_bank(150, seed=2)


def search(makers, one=ONE, two=TWO, **options):
    a, b = attention(one, makers), attention(two, makers)
    g = Gold.of(a.sentences), Gold.of(b.sentences)
    return relations(a, b, g, (hits_of(a, g[0]), hits_of(b, g[1])), **options)


def test_the_planted_head_is_found_for_each_relation() -> None:
    found = {r.relation: r for r in search([noise, only("a"), only("b"), noise])}
    assert set(found) == {"a", "b", "c"}
    for name, head in (("a", "L0H1"), ("b", "L0H2")):
        r = found[name]
        assert (r.head, r.direction, r.accuracy, r.oracle) == (head, "row", 1.0, 1.0)
        assert r.interval == (1.0, 1.0)
        assert r.p < 0.01
        assert r.ensemble == (f"{head} row",)


def test_heads_that_attend_to_their_dependents_are_found_by_their_columns() -> None:
    for r in search([noise, turned]):
        assert (r.head, r.direction, r.accuracy) == ("L0H1", "column", 1.0)


def test_noise_scores_at_chance_and_no_relation_is_significant() -> None:
    """One of the other n - 1 words, picked at random."""
    bank = random_bank(400, seed=5, low=6, high=7)
    other = random_bank(400, seed=6, low=6, high=7)
    found = search([noise, noise], bank, other)
    for r in found:
        assert r.accuracy == pytest.approx(1 / 5, abs=4 * (0.16 / r.n) ** 0.5)
        assert r.p > 0.05


def test_the_head_is_chosen_where_it_is_not_reported() -> None:
    """Noise that is best on the reporting half by luck is the oracle's choice, not ours."""
    found = search([noise] * 12)
    assert all(r.oracle >= r.accuracy for r in found)
    assert any(r.oracle > r.accuracy for r in found)


def test_offsets_and_relations_by_hand() -> None:
    # det: one to the right each time; obj: two to the left
    bank = Treebank(
        "t",
        tuple(
            sentence((1, 2, -1, 5, 5, 2), ("det", "x", "root", "det", "x", "obj")) for _ in range(6)
        ),
        "0",
    )
    g = Gold.of(bank.sentences)
    assert best_offset(g, g.relation == "x") == 1
    assert best_offset(g, g.relation == "obj") == -3
    assert g.offset(2)[g.relation == "det"].tolist() == [False, True] * 6
    found = {r.relation: r for r in search([gold], bank, bank)}
    assert found["det"].baseline == 0.5
    assert found["det"].offset == 1  # the shortest of equals
    assert found["obj"].baseline == 1.0
    assert "root" not in found


def test_subtypes_count_as_their_relation_and_rare_ones_are_left_out() -> None:
    six = [sentence((1, -1), ("nmod:poss", "root")) for _ in range(6)]
    four = [sentence((1, -1), ("rare", "root")) for _ in range(4)]
    bank = Treebank("t", tuple(six + four), "0")
    (only_one,) = search([gold], bank, bank)
    assert (only_one.relation, only_one.n) == ("nmod", 6)


def test_either_word_may_pick_the_other() -> None:
    """Htut's MAX, here of words with one dependent at most, so that both ways are one to one."""
    line = [sentence((-1, 0, 1, 2, 3), ("root", "a", "a", "a", "a")) for _ in range(20)]
    bank = Treebank("t", tuple(line), "0")
    for maker in (gold, turned):
        (found,) = search([maker], bank, bank)
        assert found.either == 1.0
    (found,) = search([noise], bank, bank)
    assert found.either == pytest.approx(1 - (3 / 4) ** 2, abs=0.2)  # of four others, two chances


def test_an_ensemble_joins_heads_that_each_know_half() -> None:
    def half(which):
        def make(s, rng):
            out = 0.2 * rng.random((len(s), len(s)))
            for w, h in enumerate(s.heads):
                if h >= 0 and w % 2 == which:
                    out[w, h] = 1
            return out

        return make

    for r in search([noise, half(0), half(1), noise]):
        assert set(r.ensemble) == {"L0H1 row", "L0H2 row"}
        assert r.ensemble_accuracy == 1.0
        assert r.accuracy < 0.8


def test_an_ensemble_hit_is_the_largest_mean() -> None:
    a = attention(ONE, [noise, noise, noise])
    g = Gold.of(a.sentences)
    mine = g.relation == "a"
    found = ensemble_hits(a, g, mine, [(0, 0), (2, 1)])
    for i, hit in zip(np.flatnonzero(mine), found, strict=True):
        v = a.values[g.sentence[i]]
        mean = (v[0][g.word[i]] + v[2][:, g.word[i]]) / 2
        assert hit == (mean.argmax() == g.head[i])


def test_controls_are_those_of_the_other_models() -> None:
    a, b = attention(ONE, [gold]), attention(TWO, [gold])
    g = Gold.of(a.sentences), Gold.of(b.sentences)
    hits = hits_of(a, g[0]), hits_of(b, g[1])
    control = attention(ONE, [noise]), attention(TWO, [noise])
    random = hits_of(control[0], g[0]), hits_of(control[1], g[1])
    found = relations(a, b, g, hits, random=random, shuffled=random[1])
    for r in found:
        mine = g[1].relation == r.relation
        assert r.accuracy == 1.0
        assert r.shuffled == random[1].argmax[0, 0][mine].mean()
        assert r.random < 0.5


def test_hits_by_loops() -> None:
    a = attention(ONE, [noise, previous])
    g = Gold.of(a.sentences)
    h = hits_of(a, g)
    for at in range(0, len(g), 17):
        v = a.values[g.sentence[at]]
        w, head = g.word[at], g.head[at]
        for k in range(2):
            want = [v[k][w].argmax(), v[k][:, w].argmax(), (v[k] + v[k].T)[w].argmax()]
            empty = [v[k][w].max() == 0, v[k][:, w].max() == 0, False]
            for d in range(3):
                assert h.argmax[k, d, at] == (want[d] == head and not empty[d])


def test_a_row_without_weight_picks_nobody() -> None:
    assert argmax_words(np.array([[0.0, 0.0], [0.0, 1.0]])).tolist() == [-1, 1]


def test_directions() -> None:
    v = np.arange(9.0).reshape(3, 3)
    assert (directed(v, "row") == v).all()
    assert (directed(v, "column") == v.T).all()
    assert (directed(v, "both") == (v + v.T) / 2).all()
    assert DIRECTIONS == ("row", "column", "both")


# --- statistics ---------------------------------------------------------------------------------


def test_sums_by_sentence() -> None:
    found = per_sentence(np.array([True, False, True]), np.array([0, 0, 2]), 4)
    assert found.tolist() == [1, 0, 1, 0]
