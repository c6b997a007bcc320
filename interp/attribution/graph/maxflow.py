"""Exact maximum flow in a graph of dense layers, in compiled code.

Nodes are (layer, position), with layer 0 at the bottom. The edge from (l + 1, i) to (l, j) has
capacity `capacity[l, i, j]`. Flow runs from one position of the top layer, the source, to one of
the bottom layer, the sink.

The algorithm is Dinic's: compute distances from the source by breadth-first search, find paths
along them until none is left, and repeat. Three properties make it fast here. The search visits
only positions of a layer that are not yet reached, so it is nearly linear in the nodes of a dense
graph. One output is solved for all inputs in turn, and only edges that carried flow are reset. No
flow exceeds the cut at the source or the cut at the sink, so a pair is finished when its flow
reaches the smaller of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.core.installed import compiled_by_numba

Array = np.ndarray
TINY = 1e-15
"""Free capacity of an edge, as a share of the largest, below which the edge counts as full."""

_compiled: Any = compiled_by_numba(error_model="numpy")


@_compiled
def _distances(capacity, flow, level, waiting, count, queue, source, sink, tiny):
    """Compute distances from the source in the residual graph; return True if the sink is reached.

    Other nodes of the top and bottom layers lie on no path, so these layers are not searched.
    """
    depth, n = capacity.shape[0], capacity.shape[1]
    for layer in range(depth + 1):
        for i in range(n):
            level[layer, i] = -1
            waiting[layer, i] = i
        count[layer] = n
    level[depth, source] = 0
    queue[0] = depth * n + source
    first, last = 0, 1
    while first < last:
        layer, i = queue[first] // n, queue[first] % n
        first += 1
        there = level[layer, i] + 1
        if layer == 1 and capacity[0, i, sink] - flow[0, 0, i, sink] > tiny:
            level[0, sink] = there
            return True
        if layer > 1:
            below, a = layer - 1, 0
            while a < count[below]:
                j = waiting[below, a]
                if capacity[below, i, j] - flow[0, below, i, j] > tiny:
                    level[below, j] = there
                    queue[last] = below * n + j
                    last += 1
                    count[below] -= 1
                    waiting[below, a] = waiting[below, count[below]]
                else:
                    a += 1
        if layer < depth - 1:
            above, a = layer + 1, 0
            while a < count[above]:
                k = waiting[above, a]
                if flow[1, layer, i, k] > tiny:
                    level[above, k] = there
                    queue[last] = above * n + k
                    last += 1
                    count[above] -= 1
                    waiting[above, a] = waiting[above, count[above]]
                else:
                    a += 1
    return False


@_compiled
def _next_step(capacity, flow, order, level, pointer, layer, i, sink, tiny):
    """Find the next edge from a node along the distances: down, or up against existing flow.

    Returns n for the sink, j for position j below, n + 1 + k for position k above, -1 for none.
    """
    depth, n = capacity.shape[0], capacity.shape[1]
    there = level[layer, i] + 1
    if there >= level[0, sink]:  # one step is left, so it must lead into the sink
        full = capacity[0, i, sink] - flow[0, 0, i, sink] <= tiny
        return -1 if layer != 1 or there > level[0, sink] or full else n
    at = pointer[layer, i]
    while at < 2 * n:
        if at < n:
            if layer <= 1:
                at = n
                continue
            j = order[layer - 1, i, at]
            if (
                level[layer - 1, j] == there
                and capacity[layer - 1, i, j] - flow[0, layer - 1, i, j] > tiny
            ):
                pointer[layer, i] = at
                return j
        elif layer >= depth - 1:
            at = 2 * n
            continue
        elif level[layer + 1, at - n] == there and flow[1, layer, i, at - n] > tiny:
            pointer[layer, i] = at
            return at + 1
        at += 1
    pointer[layer, i] = at
    return -1


@_compiled
def _push(capacity, flow, path, length, room, touched, marks, tiny):
    """Send the largest flow along a path; return it, the first full edge, and the mark count."""
    n = capacity.shape[1]
    for step in range(length):
        edge, up, a, b = path[step, 0], path[step, 1], path[step, 2], path[step, 3]
        free = flow[0, edge, a, b] if up else capacity[edge, a, b] - flow[0, edge, a, b]
        room = min(room, free)
    restart = length - 1
    for step in range(length - 1, -1, -1):
        edge, up, a, b = path[step, 0], path[step, 1], path[step, 2], path[step, 3]
        if flow[0, edge, a, b] == 0.0:
            if marks < len(touched):
                touched[marks] = (edge * n + a) * n + b
            marks += 1
        now = flow[0, edge, a, b] + (-room if up else room)
        flow[0, edge, a, b] = now
        flow[1, edge, b, a] = now
        if (now if up else capacity[edge, a, b] - now) <= tiny:
            restart = step
    return room, restart, marks


@_compiled
def _solve(capacity, order, source, sink, bound, tiny, flow, work, touched):
    """Compute the maximum flow up to `bound`; return it and the number of edges that changed."""
    level, pointer, waiting, count, queue, path = work
    depth, n = capacity.shape[0], capacity.shape[1]
    total, marks = 0.0, 0
    while bound - total > tiny:
        if not _distances(capacity, flow, level, waiting, count, queue, source, sink, tiny):
            break
        pointer[:] = 0
        layer, i, length = depth, source, 0
        while True:
            step = _next_step(capacity, flow, order, level, pointer, layer, i, sink, tiny)
            if step == -1:
                if length == 0:
                    break
                level[layer, i] = -1  # dead end for the rest of this phase
                length -= 1
                up = path[length, 1] == 1
                layer = path[length, 0] + (0 if up else 1)
                i = path[length, 3] if up else path[length, 2]
                pointer[layer, i] += 1
                continue
            if step > n:
                path[length, 0], path[length, 1] = layer, 1
                path[length, 2], path[length, 3] = step - n - 1, i
                layer, i = layer + 1, step - n - 1
            else:
                below = sink if step == n else step
                path[length, 0], path[length, 1] = layer - 1, 0
                path[length, 2], path[length, 3] = i, below
                layer, i = layer - 1, below
            length += 1
            if layer == 0:
                room, length, marks = _push(
                    capacity, flow, path, length, bound - total, touched, marks, tiny
                )
                total += room
                if bound - total <= tiny:
                    break
                # continue from the first full edge of the path, not from the source
                up = path[length, 1] == 1
                layer = path[length, 0] + (0 if up else 1)
                i = path[length, 3] if up else path[length, 2]
    return total, marks


@_compiled
def _row(capacity, order, source, bounds, tiny, found):
    """Compute flows from one source to every sink; a flow that reaches its bound ends early."""
    depth, n = capacity.shape[0], capacity.shape[1]
    flow = np.zeros((2, depth, n, n))  # index 1 is the transpose, for the incoming edges of a node
    nodes = (depth + 1) * n
    work = (
        np.empty((depth + 1, n), np.int32),
        np.empty((depth + 1, n), np.int32),
        np.empty((depth + 1, n), np.int32),
        np.empty(depth + 1, np.int32),
        np.empty(nodes + 1, np.int32),
        np.empty((nodes + 1, 4), np.int32),
    )
    touched = np.empty(depth * n * n, np.int64)
    for sink in range(n):
        found[sink], marks = _solve(
            capacity, order, source, sink, bounds[sink], tiny, flow, work, touched
        )
        if marks > len(touched):
            flow[:] = 0
        else:
            for m in range(marks):
                b, rest = touched[m] % n, touched[m] // n
                flow[0, rest // n, rest % n, b] = 0
                flow[1, rest // n, b, rest % n] = 0
    return work[0]


def max_flows(
    capacity: Float[Array, "layer pos pos"],
    sources: Sequence[int],
    bounds: Float[Array, "source pos"],
) -> Float[Array, "source pos"]:
    """Compute the maximum flow from chosen top positions to every bottom position."""
    capacity, order, tiny = _prepared(capacity)
    flows = np.zeros((len(sources), capacity.shape[1]))
    for row, source, bound in zip(flows, sources, bounds, strict=True):
        _row(capacity, order, source, np.ascontiguousarray(bound), tiny, row)
    return flows


def _prepared(capacity: Array) -> tuple[Array, Array, float]:
    """Return capacities as float64, the order of each row's edges by size, and the tolerance.

    Large edges come first: a path then carries more flow, and fewer paths are needed.
    """
    capacity = np.ascontiguousarray(capacity, dtype=np.float64)
    order = np.argsort(-capacity, axis=-1, kind="stable").astype(np.int32)
    return capacity, order, TINY * float(capacity.max(initial=0.0))
