"""Random directed graphs with the degrees of a given one, and counts of three-node motifs."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np

Edges = Sequence[tuple[int, int]]
SWAPS = 10  # attempted exchanges per edge


def rewired(edges: Edges, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Exchange the ends of random pairs of edges, which keeps the degrees of every node.

    No self-loop and no double edge arises. If every edge leads to an earlier node (causal
    attention), every edge of the result does.
    """
    pairs = [(int(a), int(b)) for a, b in edges]
    there = set(pairs)
    causal = all(a > b for a, b in pairs)
    if len(pairs) < 2:
        return pairs
    for one, other in rng.integers(len(pairs), size=(SWAPS * len(pairs), 2)).tolist():
        (a, b), (c, d) = pairs[one], pairs[other]
        new = (a, d), (c, b)
        if a == d or c == b or new[0] in there or new[1] in there:
            continue
        if causal and not (a > d and c > b):
            continue
        there -= {pairs[one], pairs[other]}
        there |= set(new)
        pairs[one], pairs[other] = new
    return pairs


def triads(n: int, edges: Edges) -> dict[str, int]:
    """Return the number of connected three-node motifs of each kind (Holland and Leinhardt)."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(edges)
    census = nx.triadic_census(graph)
    return {name: int(count) for name, count in census.items() if name not in ("003", "012", "102")}
