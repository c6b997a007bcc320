"""Spanning trees against networkx, by hand, and with ties."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.syntax.spanning import (
    arborescence,
    arborescence_all,
    prim,
    prim_all,
    rooted,
)


def total(score, heads):
    return sum(score[d, h] for d, h in enumerate(heads) if h >= 0)


def is_tree(heads, root):
    assert heads[root] == -1
    assert (np.delete(heads, root) >= 0).all()
    for d in range(len(heads)):
        seen, at = set(), d
        while at != root:
            assert at not in seen
            seen.add(at)
            at = heads[at]


def best_undirected(score):
    graph = nx.Graph()
    n = len(score)
    graph.add_weighted_edges_from(
        (i, j, max(score[i, j], score[j, i])) for i in range(n) for j in range(i)
    )
    return nx.maximum_spanning_tree(graph).size(weight="weight")


def best_directed(score, root):
    graph = nx.DiGraph()
    n = len(score)
    graph.add_weighted_edges_from(
        (h, d, score[d, h]) for d in range(n) for h in range(n) if d not in (h, root)
    )
    return nx.maximum_spanning_arborescence(graph).size(weight="weight")


@settings(max_examples=40, deadline=None)
@given(n=st.integers(2, 9), seed=st.integers(0, 10**6), whole=st.booleans())
def test_sums_are_those_of_networkx(n, seed, whole) -> None:
    """Whole numbers tie often; the sum is then the same though the trees may differ."""
    rng = np.random.default_rng(seed)
    score = rng.integers(0, 3, (n, n)).astype(float) if whole else rng.random((n, n))
    parents = prim(score)
    is_tree(parents, 0)
    found = sum(max(score[v, p], score[p, v]) for v, p in enumerate(parents) if p >= 0)
    assert found == pytest.approx(best_undirected(score), rel=1e-12)
    root = int(rng.integers(n))
    heads = arborescence(score, root)
    is_tree(heads, root)
    assert total(score, heads) == pytest.approx(best_directed(score, root), rel=1e-12)


@pytest.mark.parametrize("n", [30, 60])
def test_long_sentences_and_negative_scores(n) -> None:
    rng = np.random.default_rng(n)
    score = rng.normal(size=(n, n))
    heads = arborescence(score, 3)
    is_tree(heads, 3)
    assert total(score, heads) == pytest.approx(best_directed(score, 3), rel=1e-12)


def test_without_ties_the_trees_themselves_are_those_of_networkx() -> None:
    rng = np.random.default_rng(1)
    score = rng.random((12, 12))
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(
        (h, d, score[d, h]) for d in range(12) for h in range(12) if d not in (h, 5)
    )
    want = {d: h for h, d in nx.maximum_spanning_arborescence(graph).edges}
    assert {d: h for d, h in enumerate(arborescence(score, 5)) if h >= 0} == want


def test_nested_cycles() -> None:
    # 1 and 2 want each other most, then 3 and that pair, and only a weak edge enters from 0
    score = np.zeros((4, 4))
    score[1, 2] = score[2, 1] = 9
    score[3, 1], score[1, 3] = 8, 7
    score[1, 0], score[2, 0], score[3, 0] = 1, 2, 3
    assert arborescence(score, 0).tolist() == [-1, 3, 1, 0]


def test_ties_are_broken_by_index() -> None:
    assert prim(np.ones((4, 4))).tolist() == [-1, 0, 0, 0]
    score = np.zeros((3, 3))
    score[2, 0] = score[2, 1] = score[1, 0] = 1  # 2 may hang from either
    assert arborescence(score, 0).tolist() == [-1, 0, 0]
    is_tree(arborescence(np.ones((6, 6)), 2), 2)


def test_every_head_at_once() -> None:
    scores = np.random.default_rng(0).random((5, 7, 7))
    assert (prim_all(scores) == [prim(s) for s in scores]).all()
    assert (arborescence_all(scores, 4) == [arborescence(s, 4) for s in scores]).all()


@settings(max_examples=30, deadline=None)
@given(n=st.integers(2, 7), seed=st.integers(0, 10**6))
def test_the_root_that_gives_most_is_found(n, seed) -> None:
    score = np.random.default_rng(seed).random((n, n))
    heads = rooted(score)
    (root,) = np.flatnonzero(heads < 0)
    is_tree(heads, root)
    sums = [total(score, arborescence(score, r)) for r in range(n)]
    assert root == int(np.argmax(sums))
    assert total(score, heads) == pytest.approx(max(sums), rel=1e-12)


def test_what_a_word_wants_as_root_counts() -> None:
    score = np.random.default_rng(3).random((5, 5))
    wish = np.zeros(5)
    wish[2] = 100.0
    assert rooted(score, wish)[2] == -1
