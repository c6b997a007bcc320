"""Forgetting attention (Lin et al. 2025, FoX, arXiv:2503.02130): softmax_j(s_ij + sum of log f).

The sum is over l in j+1..i of log sigmoid(w_h . x_l + b_h).
"""

from __future__ import annotations

from torch import nn
from torch.nn import functional as F

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape


class ForgettingRule(Rule):
    """A token can hide what came before it."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.forget = nn.Linear(shape.d_model, shape.n_heads)

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Add the logs of the forget gates between key and query."""
        total = F.logsigmoid(self.forget(given.x)).transpose(1, 2).cumsum(-1)
        return super().scores(given, rows) + total[:, :, rows, None] - total[:, :, None]
