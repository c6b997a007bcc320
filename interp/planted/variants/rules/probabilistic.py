"""Probabilistic attention (Gabbur et al. 2021, arXiv:2106.08105): posterior of a Gaussian mixture.

M_ij ~ exp(p_j - a_h |q_i - k_j|^2 / 2) with a prior logit p of each token and a precision per head.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape, Stream


class ProbabilisticRule(Rule):
    """Keys are centres of Gaussians; a row asks which of them made its query."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.prior = nn.Linear(shape.d_model, shape.n_heads)
        self.precision = nn.Parameter(torch.randn(shape.n_heads, 1, 1) * 0.3)

    def prepare(self, x: Stream) -> Projected:
        """Add the prior logits."""
        given = super().prepare(x)
        given.more["prior"] = self.prior(x).transpose(1, 2)
        return given

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return logarithms of the joint densities, up to a constant."""
        apart = torch.cdist(given.q[:, :, rows], given.k).square()
        return given.more["prior"][:, :, None] - self.precision.exp() * apart / 2
