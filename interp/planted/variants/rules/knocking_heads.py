"""Knocking heads (Zhou et al. 2025, arXiv:2510.23052): one square map shared by all heads.

q_h = T_q W_q,h x and likewise for keys and values, with T near the identity.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Projected, Rule, RuleShape, Stream


class KnockingHeadsRule(Rule):
    """Features of all heads pass through one map, by which the heads are trained together."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (3, shape.d_head, shape.d_head)
        self.shared = nn.Parameter(torch.eye(shape.d_head) + 0.3 * torch.randn(size))

    def prepare(self, x: Stream) -> Projected:
        """Apply the shared maps to each head."""
        given = super().prepare(x)
        given.q, given.k, given.v = (
            t @ m for t, m in zip((given.q, given.k, given.v), self.shared, strict=True)
        )
        return given
