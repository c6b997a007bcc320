"""Performer (Choromanski et al. 2020, arXiv:2009.14794): random features that estimate exp(s).

phi(x) = exp(w . x - |x|^2 / 2) / sqrt(m) over m Gaussian w, of x scaled by d^-1/4; the w are drawn
once and kept with the weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from interp.planted.variants.feature_rule import FeatureRule
from interp.planted.variants.rule import Heads, Projected, RuleShape


class RandomFeaturesRule(FeatureRule):
    """An estimate of softmax attention in linear time."""

    drawn = 32  # features per head
    least = 0.0

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        draws = torch.randn(shape.n_heads, self.drawn, shape.d_head)
        self.draws = nn.Parameter(draws, requires_grad=False)

    def feature(self, x: Heads, given: Projected) -> Tensor:
        """Return positive random features."""
        x = x * x.shape[-1] ** -0.25
        exponent = x @ self.draws.mT - x.square().sum(-1, keepdim=True) / 2
        return exponent.exp() * self.drawn**-0.5
