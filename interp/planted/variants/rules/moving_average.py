"""Moving average (Ma et al. 2022, Mega, arXiv:2209.10655): q and k of an average of x.

y_t = a x_t + (1 - a) y_(t-1) with a rate per channel; the softmax of y to y moves values of x.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Projected, Rule, RuleShape, Stream


class MovingAverageRule(Rule):
    """Queries and keys know their neighbourhood; values do not."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.rate = nn.Parameter(torch.randn(shape.d_model))

    def prepare(self, x: Stream) -> Projected:
        """Average before the projections to queries and keys."""
        rate, found = self.rate.sigmoid(), []
        state = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            state = rate * x[:, t] + (1 - rate) * state
            found.append(state)
        y = torch.stack(found, 1)
        q, k, v = self.query(y), self.key(y), self.value(x)
        return Projected(x, self.split(q), self.split(k), self.split(v))
