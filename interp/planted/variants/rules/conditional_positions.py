"""Conditional positions (Chu et al. 2021, CPVT, arXiv:2102.10882): x + a convolution of x.

Each channel is convolved over the token and the two before it; softmax attention follows.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Projected, Rule, RuleShape, Stream


class ConditionalPositionsRule(Rule):
    """A token knows its place by its neighbours."""

    width = 3

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.kernel = nn.Parameter(torch.randn(self.width, shape.d_model) * self.width**-0.5)

    def prepare(self, x: Stream) -> Projected:
        """Add the convolution before the projections."""
        given = super().prepare(x + convolved(x, self.kernel))
        given.x = x
        return given


def convolved(x: Stream, kernel: torch.Tensor) -> Stream:
    """Return sum_a kernel[a] x[t - a] for each channel; zeros stand before the first token."""
    length = x.shape[-2]
    found = torch.zeros_like(x)
    for back, weight in enumerate(kernel):
        if back < length:
            pad = torch.zeros_like(x[..., :back, :])
            found = found + torch.cat([pad, x[..., : length - back, :]], -2) * weight
    return found
