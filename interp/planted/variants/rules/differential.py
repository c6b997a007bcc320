"""Differential (Ye et al. 2024, arXiv:2410.05258): softmax(q1 k1) - lambda softmax(q2 k2).

lambda = exp(a . b) - exp(c . d) + l0 with l0 = 0.8 - 0.6 exp(-0.3 layer). A norm of each head and
the factor 1 - l0 follow. Queries and keys are two halves of a head's width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from interp.planted.variants.rule import (
    Chosen,
    Heads,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    head_norm,
    masked_softmax,
)


class DifferentialRule(Rule):
    """What both softmaxes attend to cancels."""

    signed = True
    row_sum = "constant"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.vectors = nn.Parameter(0.1 * torch.randn(4, shape.d_head // 2))
        self.first = 0.8 - 0.6 * math.exp(-0.3 * shape.layer)

    @property
    def factor(self) -> Tensor:
        """Lambda."""
        a, b, c, d = self.vectors
        return (a @ b).exp() - (c @ d).exp() + self.first

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Subtract the second softmax."""
        seen = self.seen(given, rows)
        halves = zip(given.q[:, :, rows].chunk(2, -1), given.k.chunk(2, -1), strict=True)
        one, two = (masked_softmax(q @ k.mT * q.shape[-1] ** -0.5, seen) for q, k in halves)
        return one - self.factor * two

    def after(self, z: Heads, given: Projected) -> Tensor:
        """Normalise each head."""
        return super().after((1 - self.first) * head_norm(z), given)
