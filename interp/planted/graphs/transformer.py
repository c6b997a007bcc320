"""A small graph transformer: attention over all nodes or over neighbours, in several layers."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from interp.core.errors import OptionError
from interp.planted.graphs.layers import masked_attention


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
