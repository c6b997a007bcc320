"""Toeplitz product (Luo et al. 2022, URPE, arXiv:2205.13401): softmax_j(s_ij) c_h[i - j].

The learned factor of the distance stands outside the softmax, with any sign.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape


class ToeplitzProductRule(Rule):
    """Rows need not sum to 1, so that they can count and tell positions."""

    signed = True
    row_sum = "any"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.factor = nn.Parameter(1 + 0.7 * torch.randn(shape.n_heads, 16))

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Multiply the softmax; the last factor stands for all larger distances."""
        gap = (rows[:, None] - given.every).clamp(0, self.factor.shape[1] - 1)
        return super().rows(given, rows) * self.factor[:, gap]
