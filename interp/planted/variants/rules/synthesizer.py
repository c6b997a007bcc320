"""Dense synthesizer (Tay et al. 2020, arXiv:2005.00743): scores of the query's input alone.

s_i = relu(x_i W_h) U_h, one entry per position: no query is compared with a key.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape, Stream


class SynthesizerRule(Rule):
    """A token decides at which positions to look without looking at them."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        del self.key
        self.to_positions = nn.Parameter(torch.randn(shape.n_heads, shape.d_head, shape.length))

    def prepare(self, x: Stream) -> Projected:
        """Return queries and values; there are no keys."""
        q = self.split(self.query(x)).relu()
        return Projected(x, q, q[..., :0], self.split(self.value(x)))

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return scores of positions."""
        return given.q[:, :, rows] @ self.to_positions[..., : len(given.every)]
