"""Multi-token attention (Golovneva et al. 2025, arXiv:2504.00927): a convolution over the scores.

s'_ij = sum over a in 0..2 and b in -1..1 of w_h[a, b] s_(i-a)(j-b), with hidden scores as 0, then a
softmax. The convolution over heads and the norm are left out.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape

QUERIES, SIDE = 3, 1  # earlier queries with the row itself; keys on each side


class ScoreConvolutionRule(Rule):
    """A weight depends on several queries and keys at once."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        kernel = 0.3 * torch.randn(shape.n_heads, QUERIES, 2 * SIDE + 1)
        kernel[:, 0, SIDE] += 1
        self.kernel = nn.Parameter(kernel)

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Sum shifted scores of the row and of the rows before it."""
        found = 0.0
        for a in range(QUERIES):
            earlier = rows - a
            at = earlier.clamp_min(0)
            real = self.seen(given, at) & (earlier >= 0)[:, None]
            padded = F.pad(super().scores(given, at) * real, (SIDE, SIDE))
            for b in range(-SIDE, SIDE + 1):
                shifted = padded[..., SIDE - b : SIDE - b + len(given.every)]
                found = found + self.kernel[:, a, b + SIDE, None, None] * shifted
        return found  # type: ignore[return-value]
