"""Bounds and closed forms of attention flow, and estimates of the time to solve it."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

Array = np.ndarray
SATURATED_FROM = 0.5
"""Share of saturated pairs from which a warning is given that only the first layer matters."""

_SECONDS = {  # per pair and layer: a factor and the power of the length; see benchmarks/flow.md
    "numba": (1e-7, 1.5),
    "scipy": (5e-8, 2.0),
    "ortools": (5e-8, 2.0),
    "networkx": (9e-6, 2.0),
}


def reachable(capacity: Float[Array, "layer pos pos"], output: int) -> Float[Array, " pos"]:
    """Mark by 1 the positions above the bottom layer from which a path leads to an output."""
    nodes = np.zeros(capacity.shape[1])
    nodes[output] = 1
    for matrix in capacity[:0:-1]:
        nodes = (nodes @ (matrix > 0) > 0).astype(np.float64)
    return nodes


def bounds(
    capacity: Float[Array, "layer pos pos"], outputs: list[int]
) -> Float[Array, "output source"]:
    """Compute the smaller of two cuts of every pair, at its output and at its input.

    The first is the sum of the capacities that leave the output, the second the sum of those that
    enter the input. If rows sum to 1 the result is `min(1, column sum of layer 1)`, where the sum
    runs over the positions from which a path leads to the output.
    """
    leaves = capacity[-1, outputs].sum(1)
    enters = np.stack([reachable(capacity, u) @ capacity[0] for u in outputs])
    return np.minimum(leaves[:, None], enters)


def closed_form(
    capacity: Float[Array, "layer pos pos"], outputs: list[int]
) -> Float[Array, "output source"] | None:
    """Compute the flow through one layer (its edge) or two (a sum of minima); None for more.

    With three layers or more, paths share inner edges, and no such sum exists.
    """
    if len(capacity) == 1:
        return capacity[0, outputs]
    if len(capacity) == 2:
        return np.stack([np.minimum(capacity[1, u][:, None], capacity[0]).sum(0) for u in outputs])
    return None


def saturated(flow: Float[Array, "output source"], bound: Float[Array, "output source"]) -> float:
    """Compute the share of pairs with a path whose flow equals its bound; NaN without paths."""
    open_pairs = bound > 0
    if not open_pairs.any():
        return float("nan")
    return float((flow >= bound * (1 - 1e-7))[open_pairs].mean())


def estimate_seconds(n: int, layers: int, outputs: int, backend: str = "numba") -> float:
    """Estimate the seconds for all pairs of some outputs on one core, within a small factor.

    Closed forms count as 0 seconds.
    """
    if layers <= 2 and backend == "numba":
        return 0.0
    factor, power = _SECONDS[backend]
    return outputs * n * layers * factor * n**power
