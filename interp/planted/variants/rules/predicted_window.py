"""Predicted window (Luong et al. 2015, arXiv:1508.04025): softmax times a Gaussian at p_i.

p_i = i sigmoid(u . tanh(W x_i)), width 2; weights are not normalised again.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape, Stream

WIDTH = 2.0


class PredictedWindowRule(Rule):
    """A row says where it looks before it looks."""

    row_sum = "at most 1"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.hidden = nn.Linear(shape.d_model, shape.d_head, bias=False)
        self.place = nn.Linear(shape.d_head, shape.n_heads, bias=False)

    def prepare(self, x: Stream) -> Projected:
        """Add the predicted places."""
        given = super().prepare(x)
        share = self.place(torch.tanh(self.hidden(x))).sigmoid()
        given.more["place"] = (share * given.every[:, None]).transpose(1, 2)
        return given

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Weight the softmax by nearness to the place."""
        apart = given.every - given.more["place"][:, :, rows, None]
        return super().rows(given, rows) * (-apart.square() / (2 * WIDTH**2)).exp()
