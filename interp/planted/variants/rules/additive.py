"""Additive scores (Bahdanau et al. 2014, arXiv:1409.0473; pointer networks, arXiv:1506.03134).

M[i, j] = softmax_j(u_h . tanh(q_i + k_j)).
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape


class AdditiveRule(Rule):
    """Scores of a small network instead of a product."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.u = nn.Parameter(torch.randn(shape.n_heads, shape.d_head))

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return the network's scores."""
        together = torch.tanh(given.q[:, :, rows, None] + given.k[:, :, None])
        return torch.einsum("bhijd,hd->bhij", together, self.u)
