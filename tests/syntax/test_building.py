"""Trees: gold attention gives gold trees, a chain the adjacent ones, noise what chance gives."""

from __future__ import annotations

import numpy as np
import pytest
from syntax.made import attention, gold, noise, previous, random_bank, sentence, turned

from interp.core.statistics import RatioBootstrap
from interp.syntax.building import (
    FOUND_ROOT,
    GOLD_ROOT,
    CountedWords,
    chain,
    choose_directed,
    choose_joined,
    make_trees,
    tree,
    uuas_by_head,
    words_that_count,
)
from interp.syntax.gold import directed
from interp.syntax.probe import fit_probe
from interp.syntax.result import SPANNING

BANK = random_bank(120, seed=3)
PARTS = words_that_count(BANK.sentences, True)
BOOT = RatioBootstrap(len(BANK), draws=200)


def trees(scorer, method):
    return make_trees(PARTS, scorer, method).trees(BOOT, method, (), "", True)


@pytest.mark.slow
def test_gold_attention_gives_gold_trees() -> None:
    a = attention(BANK, [noise, gold, turned])
    uuas = uuas_by_head(a, PARTS)
    assert uuas[1] == uuas[2] == 1.0
    for h in (1, 2):
        assert trees(lambda i, h=h: a.values[i][h], SPANNING).uuas == 1.0
    assert choose_directed(a, PARTS) == (1, "row")
    for method in (GOLD_ROOT, FOUND_ROOT):
        made = trees(lambda i: a.values[i][1], method)
        assert (made.uuas, made.uas) == (1.0, 1.0)
        made = trees(lambda i: directed(a.values[i][2], "column"), method)
        assert (made.uuas, made.uas) == (1.0, 1.0)


def test_a_head_that_points_the_wrong_way_has_edges_and_no_directions() -> None:
    a = attention(BANK, [turned])
    made = trees(lambda i: a.values[i][0], GOLD_ROOT)
    assert made.uas < 0.5
    assert np.isnan(trees(lambda i: a.values[i][0], SPANNING).uas)


def test_chains_by_hand() -> None:
    # heads: 0 <- 1, 1 root, 2 <- 1, 3 <- 0: edges 01 and 12 are adjacent, 03 is not
    parts = [CountedWords.of(sentence((1, -1, 1, 0)), True)]
    forward = chain(parts, 1).trees(RatioBootstrap(1), "next", (), "", True)
    back = chain(parts, -1).trees(RatioBootstrap(1), "previous", (), "", True)
    assert (forward.uuas, back.uuas) == (2 / 3, 2 / 3)
    assert (forward.uas, back.uas) == (1 / 3, 1 / 3)


def test_attention_to_the_previous_word_is_the_adjacent_chain() -> None:
    a = attention(BANK, [previous])
    made = trees(lambda i: a.values[i][0], SPANNING)
    base = chain(PARTS, -1).trees(BOOT, "previous", (), "", True)
    assert made.uuas == base.uuas
    assert made.uuas_interval == base.uuas_interval


def test_noise_finds_what_random_trees_share() -> None:
    """A random tree has each of n (n - 1) / 2 pairs with probability 2 / n."""
    bank = random_bank(400, seed=9, low=10, high=11)
    a = attention(bank, [noise] * 4)
    found = uuas_by_head(a, words_that_count(bank.sentences, True))
    assert found == pytest.approx(np.full(4, 0.2), abs=0.03)


def test_joined_heads_are_added_while_they_help() -> None:
    def half(which):
        def make_(s, rng):
            out = 0.3 * rng.random((len(s), len(s)))
            for w, h in enumerate(s.heads):
                if h >= 0 and w % 2 == which:
                    out[w, h] = 1
            return out

        return make_

    a = attention(BANK, [noise, half(0), noise, half(1)])
    uuas = uuas_by_head(a, PARTS)
    assert sorted(choose_joined(a, PARTS, uuas)) == [1, 3]
    alone = attention(BANK, [gold, noise])
    assert choose_joined(alone, PARTS, uuas_by_head(alone, PARTS)) == [0]


def test_punctuation_may_be_left_out_of_trees_and_counts() -> None:
    s = sentence((1, -1, 1, 2), ("dep", "root", "punct", "dep"))
    whole, rest = CountedWords.of(s, True), CountedWords.of(s, False)
    assert (whole.edges, rest.edges) == (3, 1)
    assert rest.kept.tolist() == [0, 1, 3]
    assert rest.heads.tolist() == [1, -1, -1]  # the head of the last one is left out
    score = np.zeros((4, 4))
    score[0, 3] = 1  # through the words that are left
    assert tree(rest, score, SPANNING)[0][2] == 0


def test_a_predicted_root_counts() -> None:
    parts = [CountedWords.of(sentence((1, -1, 1)), True)]
    right = np.array([[0, 1, 0], [0, 0, 0], [0, 1, 0]], dtype=float)
    made = make_trees(parts, lambda i: right, FOUND_ROOT).trees(
        RatioBootstrap(1), "x", (), "", True
    )
    assert made.uas == 1.0  # three words, the root among them
    other = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=float)  # 0 is the root
    made = make_trees(parts, lambda i: other, FOUND_ROOT).trees(
        RatioBootstrap(1), "x", (), "", True
    )
    assert made.uas == 1 / 3
    assert made.uuas == 1.0


# --- the probe ----------------------------------------------------------------------------------


def test_the_probe_finds_the_heads_and_their_directions() -> None:
    a = attention(BANK, [noise, gold, turned, noise])
    probe = fit_probe(a)
    assert probe.leaving.argmax() == 1
    assert probe.received.argmax() == 2
    assert np.abs(probe.leaving[[0, 3]]).max() < 0.2 * probe.leaving[1]
    assert probe.loss < 0.05
    fresh = random_bank(60, seed=8)
    b = attention(fresh, [noise, gold, turned, noise])
    made = make_trees(
        words_that_count(fresh.sentences, True), lambda i: probe.score(b.values[i]), GOLD_ROOT
    )
    assert made.trees(RatioBootstrap(60), "x", (), "", True).uas == 1.0


def test_the_probe_on_noise_learns_nothing() -> None:
    bank = random_bank(300, seed=4, low=8, high=9)
    probe = fit_probe(attention(bank, [noise] * 3))
    assert probe.loss == pytest.approx(np.log(7), rel=0.02)  # one of seven other words
    assert probe.n == 300 * 7


def test_its_score_is_the_weighted_sum() -> None:
    a = attention(BANK, [noise, noise])
    probe = fit_probe(a)
    v = a.values[0]
    want = sum(probe.leaving[h] * v[h] + probe.received[h] * v[h].T for h in range(2))
    found = probe.score(v)
    off = ~np.eye(len(found), dtype=bool)
    np.testing.assert_allclose((found - found[0, 1])[off], (want - want[0, 1])[off], atol=1e-6)
    assert (found.diagonal() < found[off].min()).all()
