"""What bounds a flow, what it is in closed form, and what solving it will take."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

Array = np.ndarray
SATURATED_FROM = 0.5
"""Share of saturated pairs from which a flow is said to tell little beyond its first layer."""

_SECONDS = {  # per pair and layer: a factor, and the power of the length; see benchmarks/flow.md
    "numba": (1e-7, 1.5),
    "scipy": (5e-8, 2.0),
    "ortools": (5e-8, 2.0),
    "networkx": (9e-6, 2.0),
}


def reachable(capacity: Float[Array, "layer pos pos"], output: int) -> Float[Array, " pos"]:
    """Which positions just above the bottom layer's edges an output can draw on, as 0 and 1."""
    nodes = np.zeros(capacity.shape[1])
    nodes[output] = 1
    for matrix in capacity[:0:-1]:
        nodes = (nodes @ (matrix > 0) > 0).astype(np.float64)
    return nodes


def bounds(
    capacity: Float[Array, "layer pos pos"], outputs: list[int]
) -> Float[Array, "output source"]:
    """The lesser of two cuts of every pair: all that leaves the output, all that enters the input.

    With rows that sum to 1 this is `min(1, column sum of layer 1)`, where the sum runs over the
    positions that the output can draw on.
    """
    leaves = capacity[-1, outputs].sum(1)
    enters = np.stack([reachable(capacity, u) @ capacity[0] for u in outputs])
    return np.minimum(leaves[:, None], enters)


def closed_form(
    capacity: Float[Array, "layer pos pos"], outputs: list[int]
) -> Float[Array, "output source"] | None:
    """The flow of one layer (its edge) and of two (a sum of minima); None for more.

    In three layers or more, paths share edges in the middle, and no such sum exists.
    """
    if len(capacity) == 1:
        return capacity[0, outputs]
    if len(capacity) == 2:
        return np.stack([np.minimum(capacity[1, u][:, None], capacity[0]).sum(0) for u in outputs])
    return None


def saturated(flow: Float[Array, "output source"], bound: Float[Array, "output source"]) -> float:
    """Share of pairs with a path whose flow is the lesser of the two cuts; NaN without paths."""
    open_pairs = bound > 0
    if not open_pairs.any():
        return float("nan")
    return float((flow >= bound * (1 - 1e-7))[open_pairs].mean())


def estimate_seconds(n: int, layers: int, outputs: int, backend: str = "numba") -> float:
    """How long all pairs of some outputs take on one core, to within a factor of a few.

    Closed forms take no time.
    """
    if layers <= 2 and backend == "numba":
        return 0.0
    factor, power = _SECONDS[backend]
    return outputs * n * layers * factor * n**power
