"""Kernel with relative positions (Luo et al. 2021, arXiv:2106.12566): phi(q) . phi(k) exp(b_ij).

q and k have norm 1, phi are positive random features, and b is a learned score of the distance.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from interp.planted.variants.rule import Chosen, Heads, MapBlock, Projected, Rule, RuleShape, Stream


class KernelRelativeRule(Rule):
    """Linear attention that knows distances; a Toeplitz matrix times a kernel."""

    drawn = 16

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        draws = torch.randn(shape.n_heads, shape.d_head, self.drawn)
        self.draws = nn.Parameter(draws, requires_grad=False)
        self.bias = nn.Parameter(torch.randn(shape.n_heads, 32))

    def prepare(self, x: Stream) -> Projected:
        """Normalise queries and keys."""
        given = super().prepare(x)
        given.q, given.k = (F.normalize(t, dim=-1) for t in (given.q, given.k))
        return given

    def feature(self, x: Heads) -> Heads:
        """Return positive random features of vectors of norm 1."""
        return (x @ self.draws - 0.5).exp()

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Weight products of features by the distance, and normalise."""
        gap = (rows[:, None] - given.every).clamp(0, self.bias.shape[1] - 1)
        products = self.feature(given.q[:, :, rows]) @ self.feature(given.k).mT
        found = products * self.bias[:, gap].exp() * self.seen(given, rows)
        return found / found.sum(-1, keepdim=True)
