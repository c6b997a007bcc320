"""Maximum flow by other libraries, as alternatives and for comparison.

Edges without capacity are omitted. scipy and OR-tools use integers: capacities are scaled and
rounded to the nearest integer, which changes a flow by at most half a unit per edge of a minimum
cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.core.errors import OptionError
from interp.core.installed import package_error

Array = np.ndarray
BACKENDS = ("numba", "scipy", "ortools", "networkx")
BITS = {"scipy": 30, "ortools": 40}  # bits of integer capacities; a row sums to at most 2**bits


def edges(
    capacity: Float[Array, "layer pos pos"],
) -> tuple[Int[Array, " edge"], Int[Array, " edge"], Float[Array, " edge"]]:
    """Return tail, head and capacity of all edges above 0; node (layer, i) is `layer * pos + i`."""
    n = capacity.shape[1]
    layer, tail, head = np.nonzero(capacity)
    return (layer + 1) * n + tail, layer * n + head, capacity[layer, tail, head]


def capacity_scale(capacity: Float[Array, "layer pos pos"], backend: str) -> float:
    """Compute the integer units per unit of capacity, a power of two."""
    most = max(float(capacity.sum(2).max(initial=0.0)), 1.0)
    return 2.0 ** (BITS[backend] - int(np.ceil(np.log2(most))))


def error_bound(capacity: Float[Array, "layer pos pos"], backend: str) -> float:
    """Bound the rounding error of a flow: half a unit per edge; 0 for floating-point solvers."""
    if backend not in BITS:
        return 0.0
    return float(0.5 * np.count_nonzero(capacity) / capacity_scale(capacity, backend))


def pair_flows(
    capacity: Float[Array, "layer pos pos"],
    pairs: Sequence[tuple[int, int]],
    backend: str,
    algorithm: str | None = None,
) -> Float[Array, " pair"]:
    """Compute the maximum flow of each (output, source) pair by another library."""
    solve = {"scipy": _scipy, "ortools": _ortools, "networkx": _networkx}.get(backend)
    if solve is None:
        raise OptionError(f"unknown backend {backend!r}; known: {', '.join(BACKENDS)}")
    return np.array(solve(np.asarray(capacity, dtype=np.float64), pairs, algorithm), dtype=float)


def _ends(capacity: Array, pair: tuple[int, int]) -> tuple[int, int]:
    return len(capacity) * capacity.shape[1] + pair[0], pair[1]


def _scipy(capacity: Array, pairs: Sequence[tuple[int, int]], algorithm: str | None) -> list[float]:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    tail, head, width = edges(capacity)
    scale = capacity_scale(capacity, "scipy")
    nodes = (len(capacity) + 1) * capacity.shape[1]
    units = np.rint(width * scale).astype(np.int32)
    graph: Any = csr_array((units, (tail.astype(np.int32), head.astype(np.int32))), (nodes, nodes))
    graph.eliminate_zeros()
    flows = []
    for pair in pairs:
        flow = maximum_flow(graph, *_ends(capacity, pair), method=algorithm or "dinic")
        flows.append(flow.flow_value / scale)
    return flows


def _ortools(
    capacity: Array, pairs: Sequence[tuple[int, int]], algorithm: str | None
) -> list[float]:
    try:
        max_flow = import_module("ortools.graph.python.max_flow")
    except ImportError as error:
        install = "pip install 'interp[flow]', or use backend='numba'"
        raise package_error(error, "backend 'ortools'", "ortools", install) from error
    if algorithm is not None:
        raise OptionError(f"algorithm={algorithm!r}: OR-tools has one algorithm; leave it out")
    tail, head, width = edges(capacity)
    scale = capacity_scale(capacity, "ortools")
    solver = max_flow.SimpleMaxFlow()
    units = np.rint(width * scale).astype(np.int64)
    solver.add_arcs_with_capacity(tail.astype(np.int32), head.astype(np.int32), units)
    flows = []
    for pair in pairs:
        source, sink = _ends(capacity, pair)
        if max(source, sink) >= solver.num_nodes():  # no edge leaves the output
            flows.append(0.0)
            continue
        status = solver.solve(source, sink)
        assert status == solver.OPTIMAL, f"OR-tools ended with status {status}"
        flows.append(solver.optimal_flow() / scale)
    return flows


def _networkx(
    capacity: Array, pairs: Sequence[tuple[int, int]], algorithm: str | None
) -> list[float]:
    import networkx

    graph = networkx.DiGraph()
    graph.add_nodes_from(range((len(capacity) + 1) * capacity.shape[1]))
    for tail, head, width in zip(*edges(capacity), strict=True):
        graph.add_edge(int(tail), int(head), capacity=float(width))
    how = {} if algorithm is None else {"flow_func": getattr(networkx.algorithms.flow, algorithm)}
    return [networkx.maximum_flow_value(graph, *_ends(capacity, pair), **how) for pair in pairs]
