"""Positional attention (Back de Luca et al. 2024, arXiv:2410.01686): scores of positions alone.

M[i, j] = softmax_j(p_i . r_j / sqrt(d)) with learned p and r per head.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Projected, Rule, RuleShape, Stream


class PositionalRule(Rule):
    """The map is the same for all tokens."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        del self.query, self.key
        size = (shape.n_heads, shape.length, shape.d_head)
        self.of_query, self.of_key = (nn.Parameter(torch.randn(size)) for _ in range(2))

    def prepare(self, x: Stream) -> Projected:
        """Return rows of the tables as queries and keys."""
        v = self.split(self.value(x))
        q, k = (t[:, : x.shape[1]].expand(len(x), -1, -1, -1) for t in (self.of_query, self.of_key))
        return Projected(x, q, k, v)
