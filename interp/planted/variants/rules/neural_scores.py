"""Neural attention (DiGiugno and Mahmood 2025, arXiv:2502.17206): scores of a small network.

s_ij = w . relu(A q_i + B k_j + c), then a softmax.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape


class NeuralScoresRule(Rule):
    """A score is no product: it can prefer any pairs of queries and keys."""

    hidden = 6

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (2, shape.n_heads, shape.d_head, self.hidden)
        self.first = nn.Parameter(torch.randn(size) * shape.d_head**-0.5)
        self.bias = nn.Parameter(0.3 * torch.randn(shape.n_heads, 1, 1, self.hidden))
        self.last = nn.Parameter(torch.randn(shape.n_heads, self.hidden, 1))

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return the outputs of the network."""
        q, k = given.q[:, :, rows] @ self.first[0], given.k @ self.first[1]
        hidden = (q[:, :, :, None] + k[:, :, None] + self.bias).relu()
        return (hidden @ self.last[:, None])[..., 0]
