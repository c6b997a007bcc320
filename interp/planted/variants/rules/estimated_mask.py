"""Estimated mask (Lee et al. 2023, SEA, arXiv:2310.01777): softmax over keys of a linear estimate.

Random features estimate each row; its 4 largest estimates, and the row itself, are attended to.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import (
    Chosen,
    Projected,
    Rule,
    RuleShape,
    SeenBlock,
    among_largest,
)


class EstimatedMaskRule(Rule):
    """A linear pass says where to look; only there are scores computed."""

    kept = 4
    drawn = 16

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        draws = torch.randn(shape.n_heads, shape.d_head, self.drawn)
        self.draws = nn.Parameter(draws, requires_grad=False)

    def estimate(self, given: Projected, rows: Chosen) -> torch.Tensor:
        """Return estimates of exp(s) up to a factor per row."""
        size = given.q.shape[-1] ** -0.25
        q, k = given.q[:, :, rows] * size @ self.draws, given.k * size @ self.draws
        q, k = (t - t.amax((-1, -2), keepdim=True) for t in (q, k))
        norm = (given.k * size).square().sum(-1, keepdim=True) / 2
        return q.exp() @ (k - norm).exp().mT

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep keys of the largest estimates."""
        past = super().seen(given, rows)
        found = self.estimate(given, rows).masked_fill(~past, -1.0)
        return (among_largest(found, self.kept) | (given.every == rows[:, None])) & past
