"""Normalised attention (Richter and Wattenhofer 2020, arXiv:2005.09561): standardised scores.

M[i, j] = (a_h (s_ij - mean_i) / sd_i + b_h) / n_i over the n_i visible keys, so it can leave the
simplex. Defined here by this formula.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import MapBlock, Rule, RuleShape, SeenBlock


class NormalisedScoresRule(Rule):
    """Weights can be negative and larger than 1."""

    signed = True
    row_sum = "constant"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.gain = nn.Parameter(torch.ones(shape.n_heads, 1, 1))
        self.bias = nn.Parameter(torch.rand(shape.n_heads, 1, 1))

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Standardise visible scores."""
        number = seen.sum(-1, keepdim=True)
        scores = scores * seen
        centred = (scores - scores.sum(-1, keepdim=True) / number) * seen
        spread = (centred.square().sum(-1, keepdim=True) / number + 1e-5).sqrt()
        return (self.gain * centred / spread + self.bias) * seen / number
