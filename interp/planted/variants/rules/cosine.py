"""Cosine (Liu et al. 2021, Swin v2, arXiv:2111.09883): softmax_j(t_h cos(q_i, k_j)).

The factor t_h is learned.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape


class CosineRule(Rule):
    """Norms of queries and keys do not matter."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.log_scale = nn.Parameter(torch.full((shape.n_heads, 1, 1), 2.0))

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return scaled cosines."""
        q, k = (F.normalize(x, dim=-1) for x in (given.q[:, :, rows], given.k))
        return q @ k.mT * self.log_scale.exp()
