"""Attention graphs: thresholds, measures with nulls, comparison with given graphs, bad input."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from syntax.made import word_tokenizer

import interp
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.text.graphs import attention_graph, graph_of, node_attention, over_layers, read_graph
from interp.text.graphs.inputs import GraphInput
from interp.text.graphs.rewire import rewired, triads
from interp.text.graphs.thresholds import kept_edges

MATRIX = np.array([[9.0, 0, 0, 0], [3, 9, 0, 0], [1, 2, 9, 0], [0, 0.5, 4, 9]])


def pairs(kept: np.ndarray) -> set[tuple[int, int]]:
    return set(zip(*np.nonzero(kept), strict=True))


def test_thresholds_by_hand() -> None:
    assert pairs(kept_edges(MATRIX, "value:2")) == {(1, 0), (2, 1), (3, 2)}
    assert pairs(kept_edges(MATRIX, "count:2")) == {(3, 2), (1, 0)}
    assert pairs(kept_edges(MATRIX, "row:1")) == {(1, 0), (2, 1), (3, 2)}
    # row 3: shares 1/9 and 8/9 of two edges, so 1 - 8/9 is below .2; column 0: 3/4, which is .25
    assert pairs(kept_edges(MATRIX, "disparity:0.2")) == {(3, 2), (2, 1)}
    assert pairs(kept_edges(MATRIX, "disparity:0.1")) == set()


def test_disparity_keeps_few_edges_of_random_weights() -> None:
    """Shares of uniform spacings are the filter's own null: it keeps its level of them."""
    rng = np.random.default_rng(0)
    w = rng.dirichlet(np.ones(40), size=41)
    w = np.stack([np.insert(row, i, 0) for i, row in enumerate(w)])
    from interp.text.graphs.thresholds import _significant

    assert _significant(w, 0.05).mean() == pytest.approx(0.05, abs=0.01)


def test_centralities_of_a_star_and_of_a_graph_in_two_parts() -> None:
    w = np.zeros((5, 5))
    w[1:4, 0] = 0.5
    graph = graph_of(w, threshold="value:0.1", seen=np.ones((5, 5)))
    frame = graph.centrality().set_index("node")
    assert frame["in_strength"].tolist() == [1.5, 0, 0, 0, 0]
    assert frame["pagerank"].idxmax() == 0
    # three of four others reach node 0, each at distance 2: 3/6 * 3/4
    assert frame.loc[0, "closeness"] == pytest.approx(0.375)
    assert graph.components() == [(0, 1, 2, 3), (4,)]
    assert frame["component"].tolist() == [0, 0, 0, 0, 1]
    with pytest.raises(OptionError, match="not connected: 2 components, the largest of 4 of 5"):
        graph.path_length()
    assert graph.largest().path_length() == pytest.approx((3 * 1 + 3 * 2) / 6)


def test_planted_communities_have_more_modularity_than_the_null() -> None:
    rng = np.random.default_rng(0)
    group = np.arange(24) % 3
    w = rng.random((24, 24)) * np.where(group[:, None] == group[None, :], 1.0, 0.2)
    labels, told = graph_of(w, threshold="count:120").communities()
    assert told["modularity"] > told["null"] + 5 * told["null_sd"]
    same = labels[:, None] == labels[None, :]
    assert (same == (group[:, None] == group[None, :])).mean() > 0.95
    _, plain = graph_of(rng.random((24, 24)), threshold="count:120").communities()
    assert abs(plain["modularity"] - plain["null"]) < 4 * plain["null_sd"]


def test_rewiring_keeps_degrees_and_causality() -> None:
    rng = np.random.default_rng(0)
    edges = [(a, b) for a, b in combinations(range(12), 2) if rng.random() < 0.4]
    causal = [(b, a) for a, b in edges]
    for given in (edges, causal):
        found = rewired(given, rng)
        assert len(set(found)) == len(given)
        assert found != given
        for end in (0, 1):
            degrees = [np.bincount([e[end] for e in x], minlength=12) for x in (found, given)]
            assert (degrees[0] == degrees[1]).all()
        assert all(a != b for a, b in found)
    assert all(a > b for a, b in rewired(causal, rng))


def test_planted_motifs_stand_out() -> None:
    w = np.zeros((30, 30))
    for at in range(0, 30, 3):  # ten cycles of three nodes
        for a, b in ((0, 1), (1, 2), (2, 0)):
            w[at + a, at + b] = 1
    table = graph_of(w, threshold="value:0.5", seen=np.ones_like(w)).motifs(n_random=50)
    row = table.set_index("motif").loc["030C"]
    assert row["count"] == 10 > 5 * row["null"]
    assert row["p"] < 0.05
    rng = np.random.default_rng(1)
    plain = nx.gnm_random_graph(20, 60, seed=1, directed=True)
    table = graph_of(
        nx.to_numpy_array(plain) * rng.random((20, 20)),
        threshold="count:60",
        seen=np.ones((20, 20)),
    ).motifs(n_random=50)
    assert (table["p"] > 0.04).mean() > 0.7
    assert triads(3, [(0, 1), (1, 2), (2, 0)])["030C"] == 1


def test_p_values_of_motifs_are_two_sided_by_hand() -> None:
    plain = nx.gnm_random_graph(12, 40, seed=3, directed=True)
    graph = graph_of(nx.to_numpy_array(plain), threshold="value:0.5", seen=np.ones((12, 12)))
    table, rng = graph.motifs(n_random=9, seed=2).set_index("motif"), np.random.default_rng(2)
    pairs = graph.edges.tolist()
    null = [triads(12, rewired(pairs, rng)) for _ in range(9)]
    for name, count in table["count"].items():
        drawn = [x[name] for x in null]
        tails = sum(x >= count for x in drawn), sum(x <= count for x in drawn)
        assert table.loc[name, "p"] == pytest.approx(min(1, 2 * (1 + min(tails)) / 10))


def test_the_null_of_an_edge_is_even_attention_to_what_the_row_sees() -> None:
    frame = graph_of(MATRIX, threshold="value:0.1").to_pandas()
    np.testing.assert_allclose(frame["null"], 1 / (frame["source"] + 1))


def test_comparison_with_a_given_graph_and_with_exchanged_nodes() -> None:
    rng = np.random.default_rng(0)
    truth = nx.gnm_random_graph(16, 40, seed=0)
    adjacency = nx.to_numpy_array(truth)
    names = [f"n{i}" for i in range(16)]
    found = graph_of(adjacency + rng.random((16, 16)), names).against(truth, n_random=60)
    assert found["auroc"] == found["precision"] == 1
    assert found["auroc_p"] < 0.02
    assert abs(found["auroc_null"] - 0.5) < 0.03
    none = graph_of(rng.random((16, 16)), names).against(adjacency, n_random=60)
    assert abs(none["auroc"] - 0.5) < 0.1
    assert none["auroc_p"] > 0.05
    named = [(f"n{a}", f"n{b}") for a, b in truth.edges()]
    one_way = graph_of(adjacency + rng.random((16, 16)), names).against(named, n_random=20)
    assert one_way["edges"] == 40 < found["edges"]
    assert one_way["pairs"] == 16 * 15  # no node with itself
    weights = rng.random((16, 16))
    weights[:, 3] += 1  # all attend to one node, and all edges of the given graph lead there
    to_one = [(i, 3) for i in range(16) if i != 3]
    found = graph_of(np.tril(weights), names).against(to_one, n_random=60)
    assert found["pairs"] == 16 * 15 / 2
    assert found["edges"] == 12
    assert found["auroc"] == 1
    assert found["auroc_null"] < 0.8


def test_products_of_layers() -> None:
    first, second = np.array([[[1.0, 0], [0.5, 0.5]]]), np.array([[[1.0, 0], [0.2, 0.8]]])
    np.testing.assert_allclose(over_layers([first, second]), second[0] @ first[0])
    below = np.tril(np.random.default_rng(0).random((2, 1, 4, 4)))
    assert not np.allclose(below[1, 0] @ below[0, 0], below[0, 0] @ below[1, 0])
    np.testing.assert_allclose(over_layers(list(below)), below[1, 0] @ below[0, 0])
    np.testing.assert_allclose(over_layers([first, second], over="mean")[1], [0.35, 0.65])
    half = 0.5 * np.eye(2) + 0.5 * first[0]
    np.testing.assert_allclose(over_layers([first], residual=0.5), half)


def test_the_graph_of_induction_joins_copies(planted_induction) -> None:
    rng = np.random.default_rng(0)
    half = rng.permutation(np.arange(1, 40))[:12].tolist()
    graph = attention_graph(planted_induction, [0, *half, *half], heads=["L1H0"], threshold="row:1")
    kept = {(int(a), int(b)) for a, b in graph.edges}
    assert {(12 + i, i + 1) for i in range(11)} <= kept
    truth = [(12 + i, i + 1) for i in range(12)]
    assert graph.against(truth)["auroc"] > 0.99
    every = attention_graph(planted_induction, [0, *half, *half], over="product", threshold="row:1")
    assert every.kind == "attention, product"
    names = nx.parse_graphml(graph._graphml()).nodes(data="name")
    assert dict(names)["0"] == str(half[0])


def test_graphs_as_prompts(tmp_path) -> None:
    file = tmp_path / "g.txt"
    file.write_text("# a path\na b\nb, c\n")
    graph = read_graph(file)
    assert graph.adjacency.sum() == 4
    text, mentions = graph.prompt()
    assert text == "a -> b. b -> c."
    assert [text[a:b] for _, (a, b) in mentions] == ["a", "b", "b", "c"]
    model = interp.load("planted:duplicate_token", tokenizer=word_tokenizer([*"abc", "->", "."]))
    spaced = GraphInput.of([("a", "b"), ("b", "c")])
    assert spaced.nodes == ("a", "b", "c")
    with pytest.raises(PromptError, match="nodes without edges"):
        node_attention(model, GraphInput.of([("a", "b")], ["a", "b", "z"]))
    file.write_text("a b c\n")
    with pytest.raises(PromptError, match="line 1"):
        read_graph(file)


def test_attention_between_mentions_equals_the_pattern(worded_gpt2) -> None:
    graph = GraphInput.of([("Tom", "Lily"), ("Lily", "Ben")])
    _, mentions = graph.prompt()
    found, chain = node_attention(worded_gpt2, graph)
    cache = worded_gpt2.capture([chain.ids], ["pattern"])
    pattern = cache["pattern", 0][0, 1].double().numpy()
    rows = [
        i
        for (n, _), (a, b) in zip(mentions, chain.spans, strict=True)
        if n == 1
        for i in range(a, b)
    ]
    first = range(*chain.spans[0])
    assert found[1, 1, 0] == pytest.approx(pattern[np.ix_(rows, first)].mean(), abs=1e-6)
    assert found.shape == (sum(s.n_heads for s in worded_gpt2.sites), 3, 3)


def test_bad_input_of_graphs(planted_induction) -> None:
    with pytest.raises(UnknownName, match="threshold"):
        kept_edges(MATRIX, "tea:1")
    for wrong in ("value", "count:1.5", "row:0", "disparity:2", "value:x"):
        with pytest.raises(OptionError, match="threshold"):
            kept_edges(MATRIX, wrong)
    with pytest.raises(OptionError, match="square"):
        graph_of(np.ones((2, 3)))
    with pytest.raises(OptionError, match="negative"):
        graph_of(-np.ones((2, 2)))
    graph = graph_of(MATRIX, list("abcd"))
    with pytest.raises(OptionError, match="'z', which does not exist"):
        graph.against([("a", "z")])
    with pytest.raises(OptionError, match="node 7, which does not exist; there are 0 to 3"):
        graph.against([(7, 0)])
    with pytest.raises(OptionError, match="both kinds"):
        graph.against(np.ones((4, 4)))
    with pytest.raises(OptionError, match=r"\[4, 4\]"):
        graph.against(np.ones((3, 3)))
    with pytest.raises(OptionError, match="no edges"):
        graph_of(np.eye(3), threshold="value:0.5").communities()
    with pytest.raises(OptionError, match="has 4 heads"):
        attention_graph(planted_induction, [0, 1, 2, 3], heads=["L1H9"])
    with pytest.raises(PromptError, match="at least 3 tokens"):
        attention_graph(planted_induction, [0, 1])
