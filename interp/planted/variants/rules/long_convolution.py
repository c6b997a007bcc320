"""Long convolution (Massaroli et al. 2023, Laughing Hyena, arXiv:2310.18780): g_h[i - j] q_i . k_j.

A learned filter of the distance, times 0.9^(i - j), stands between gates q and k / sqrt(d).
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape


class LongConvolutionRule(Rule):
    """The implicit map of a gated convolution with several heads."""

    signed = True
    row_sum = "any"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.filter = nn.Parameter(torch.randn(shape.n_heads, shape.length))

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Weight products by the filter at their distance."""
        gap = (rows[:, None] - given.every).clamp_min(0)
        fading = torch.full_like(given.q[0, 0, 0, 0], 0.9) ** gap
        kernel = self.filter[:, gap] * fading
        return self.scores(given, rows) * kernel * self.seen(given, rows)
