"""Convolved projections (Sugiharto et al. 2023, RCMHA, arXiv:2308.03429): depthwise q, k and v.

Queries, keys and values are convolved over the token and the two before it, and each distance has a
learned score.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape, Stream
from interp.planted.variants.rules.conditional_positions import convolved


class ConvolvedProjectionsRule(Rule):
    """A head compares short stretches of tokens."""

    width = 3

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (3, self.width, shape.n_heads * shape.d_head)
        self.kernels = nn.Parameter(torch.randn(size) * self.width**-0.5)
        self.bias = nn.Parameter(torch.randn(shape.n_heads, 32))

    def prepare(self, x: Stream) -> Projected:
        """Convolve the three projections."""
        parts = zip((self.query, self.key, self.value), self.kernels, strict=True)
        q, k, v = (self.split(convolved(part(x), kernel)) for part, kernel in parts)
        return Projected(x, q, k, v)

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Add the score of the distance; the last stands for all larger ones."""
        gap = (rows[:, None] - given.every).clamp(0, self.bias.shape[1] - 1)
        return super().scores(given, rows) + self.bias[:, gap]
