"""Small graph networks with readable attention: GAT, GATv2 and a graph transformer.

Each is an ordinary torch module: `forward(features, adjacency)` returns new features and the
attention of every layer, `[head, node, neighbour]`. They are ground truth for tests of attention
on graphs; `lookup` is a GATv2 whose weights are set so that each query attends to its own key.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from interp.core.errors import OptionError

SLOPE = 0.2
"""Slope of the leaky rectifier below zero, as published."""

LayerKind = Literal["gat", "gatv2"]


class GraphAttention(nn.Module):
    """One layer of graph attention over the neighbours of every node.

    With h the features of a node, i the attending node and j its neighbour:
    GAT:   e_ij = leaky(a_left . W h_i + a_right . W h_j)
    GATv2: e_ij = a . leaky(W_left h_i + W_right h_j)
    In GAT the term of i shifts all scores of its row, and the rectifier is increasing: the
    neighbours are ranked in the same order from every node (static attention).

    Args:
        d_in: width of the features.
        d_out: width per head.
        heads: number of heads, whose outputs are concatenated.
        kind: "gat" or "gatv2".
        seed: seed of the random weights.

    Raises:
        OptionError: the kind is not known.

    Reference: Velickovic et al. 2018, "Graph Attention Networks"; Brody et al. 2022, "How Attentive
    are Graph Attention Networks?".
    """

    def __init__(
        self, d_in: int, d_out: int, heads: int = 1, *, kind: LayerKind = "gat", seed: int = 0
    ):
        super().__init__()
        if kind not in ("gat", "gatv2"):
            raise OptionError(f"kind {kind!r} is not known; known: gat, gatv2")
        self.kind, self.heads, self.d_out = kind, heads, d_out
        generator = torch.Generator().manual_seed(seed)

        def drawn(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator) / shape[-1] ** 0.5)

        self.left = drawn(heads, d_out, d_in)
        self.right = drawn(heads, d_out, d_in) if kind == "gatv2" else self.left
        self.a_left = drawn(heads, d_out)
        self.a_right = drawn(heads, d_out) if kind == "gat" else self.a_left

    def scores(self, x: Float[Tensor, "node d_in"]) -> Float[Tensor, "head node neighbour"]:
        """Return the scores of all pairs before the softmax, neighbours or not."""
        left = torch.einsum("hoi,ni->hno", self.left, x)
        right = torch.einsum("hoi,ni->hno", self.right, x)
        if self.kind == "gat":
            query = torch.einsum("ho,hno->hn", self.a_left, left)
            key = torch.einsum("ho,hno->hn", self.a_right, right)
            return nn.functional.leaky_relu(query[:, :, None] + key[:, None, :], SLOPE)
        both = nn.functional.leaky_relu(left[:, :, None] + right[:, None, :], SLOPE)
        return torch.einsum("ho,hijo->hij", self.a_left, both)

    def forward(
        self, x: Float[Tensor, "node d_in"], adjacency: Bool[Tensor, "node neighbour"]
    ) -> tuple[Tensor, Float[Tensor, "head node neighbour"]]:
        """Return the new features, `[node, head * d_out]`, and the attention.

        Args:
            x: features.
            adjacency: True where a node attends to another; a node without any gets zeros.
        """
        attention = masked_attention(self.scores(x), adjacency)
        values = torch.einsum("hoi,ni->hno", self.right, x)
        return (attention @ values).transpose(0, 1).flatten(1), attention


def masked_attention(
    scores: Float[Tensor, "head node neighbour"], adjacency: Bool[Tensor, "node neighbour"]
) -> Float[Tensor, "head node neighbour"]:
    """Return the softmax over neighbours; zeros for a node without any."""
    hidden = scores.masked_fill(~adjacency, -torch.inf)
    return hidden.softmax(-1).nan_to_num(0.0)


def lookup(keys: int, *, sharpness: float = 20.0) -> GraphAttention:
    """Build a GATv2 in which each node attends to the node of the same key.

    Features are one-hot in the key; the score of a pair is minus the distance of their keys, in
    which |u| is the sum of the leaky rectifiers of u and -u. No GAT can do this for two keys.

    Args:
        keys: number of keys.
        sharpness: difference in score between the right key and any other.
    """
    layer = GraphAttention(keys, 2 * keys, kind="gatv2")
    eye = torch.eye(keys)
    with torch.no_grad():
        layer.left.copy_(torch.cat([eye, -eye])[None])
        layer.right.copy_(torch.cat([-eye, eye])[None])
        # two different keys differ in two coordinates
        layer.a_left.fill_(-sharpness / (2 * (1 - SLOPE)))
    return layer


class GraphTransformer(nn.Module):
    """Layers of dot-product attention between nodes with a residual stream, without norms or MLPs.

    Args:
        d_model: width of the features.
        layers: number of layers.
        heads: heads per layer.
        sparse: attend to neighbours only; otherwise to all nodes (dense).
        planted: set the weights of the last layer so that its heads attend to nodes with similar
            features, whatever their edges.
        seed: seed of the random weights.

    Raises:
        OptionError: the width is not divisible by the number of heads.
    """

    def __init__(
        self,
        d_model: int,
        *,
        layers: int = 2,
        heads: int = 2,
        sparse: bool = True,
        planted: bool = False,
        seed: int = 0,
    ):
        super().__init__()
        if d_model % heads:
            raise OptionError(f"d_model={d_model} is not divisible by heads={heads}")
        self.heads, self.sparse = heads, sparse
        generator = torch.Generator().manual_seed(seed)
        shape = (layers, 4, d_model, d_model)
        weights = torch.randn(*shape, generator=generator) / d_model**0.5
        if planted:
            weights[-1, 0] = weights[-1, 1] = 4 * torch.eye(d_model)
        self.weights = nn.Parameter(weights)

    def forward(
        self, x: Float[Tensor, "node d_model"], adjacency: Bool[Tensor, "node neighbour"]
    ) -> tuple[Tensor, list[Float[Tensor, "head node neighbour"]]]:
        """Return the new features and the attention of every layer."""
        seen = adjacency if self.sparse else torch.ones_like(adjacency)
        found = []
        for q, k, v, o in self.weights:
            parts = ((x @ w).unflatten(1, (self.heads, -1)).transpose(0, 1) for w in (q, k, v))
            query, key, value = parts
            scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
            attention = masked_attention(scores, seen)
            found.append(attention)
            x = x + (attention @ value).transpose(0, 1).flatten(1) @ o
        return x, found
