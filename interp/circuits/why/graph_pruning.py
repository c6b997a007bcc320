"""Influence of nodes on the logits of an attribution graph, and the part that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

_STEPS = 10_000  # longest path; the graph has no cycles, so that the sum ends before


def row_shares(weights: Float[Tensor, "target source"]) -> Float[Tensor, "target source"]:
    """Return the absolute weights, scaled so that the sources of each target sum to 1."""
    size = weights.abs()
    return size / size.sum(1, keepdim=True).clamp_min(1e-10)


def influence_of(
    shares: Float[Tensor, "target source"], start: Float[Tensor, " node"]
) -> Float[Tensor, " node"]:
    """Return `start A + start A^2 + ...`: the influence of each node on the weighted logits."""
    total, step = torch.zeros_like(start), start
    for _ in range(_STEPS):
        step = step @ shares
        if not bool(step.any()):
            return total
        total = total + step
    raise AssertionError("the attribution graph has a cycle")


def least_set(scores: Float[Tensor, " x"], share: float) -> Bool[Tensor, " x"]:
    """Return the mask of the fewest largest scores whose sum reaches a share of all."""
    if not len(scores) or float(scores.sum()) <= 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    ordered = scores.sort(descending=True).values
    reached = ordered.cumsum(0) / ordered.sum()
    at = int(torch.searchsorted(reached, torch.tensor(share, dtype=reached.dtype)))
    return scores >= ordered[min(at, len(ordered) - 1)]


def pruned(
    weights: Float[Tensor, "target source"],
    start: Float[Tensor, " node"],
    fixed: Bool[Tensor, " node"],
    inputs: Bool[Tensor, " node"],
    node_share: float,
    edge_share: float,
) -> tuple[Bool[Tensor, " node"], Bool[Tensor, "target source"], Float[Tensor, " node"]]:
    """Return masks of the nodes and edges that carry the influence, and each node's influence."""
    influence = influence_of(row_shares(weights), start)
    nodes = least_set(influence, node_share) | fixed
    left = weights * nodes[:, None] * nodes[None, :]
    shares = row_shares(left)
    through = influence_of(shares, start) + start
    scores = shares * through[:, None]
    edges = least_set(scores.flatten(), edge_share).reshape(scores.shape) & (scores > 0)
    while True:
        kept = nodes & (fixed | (edges.any(0) & (inputs | edges.any(1))))
        edges = edges & kept[:, None] & kept[None, :]
        if bool((kept == nodes).all()):
            return nodes, edges, influence
        nodes = kept
