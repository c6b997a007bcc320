"""Relative bias (Raffel et al. 2019, T5, arXiv:1910.10683): softmax_j(s_ij + b_h[bucket(i - j)]).

Buckets are one distance wide up to 8 and then grow by the logarithm, up to 16 buckets and a
distance of 64. T5's scores are not scaled; here they are.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape

BUCKETS, EXACT, FARTHEST = 16, 8, 64


class RelativeBiasRule(Rule):
    """A learned score per distance."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.bias = nn.Parameter(torch.randn(shape.n_heads, BUCKETS))

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Add the bias of the distance's bucket."""
        gap = (rows[:, None] - given.every).clamp_min(0)
        far = (gap.clamp_min(1) / EXACT).log() / math.log(FARTHEST / EXACT) * (BUCKETS - EXACT)
        bucket = torch.where(gap < EXACT, gap, EXACT + far.long()).clamp_max(BUCKETS - 1)
        return super().scores(given, rows) + self.bias[:, bucket]
