"""Selective attention (Zhang et al. 2024, arXiv:2411.12892): softmax_j(t_h(x_i) s_ij).

Defined here by t = 1 + tanh(w_h . x); the paper's temperature of values is left out.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape


class QueryTemperatureRule(Rule):
    """A query chooses how sharp its row is."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.sharpness = nn.Linear(shape.d_model, shape.n_heads, bias=False)

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Scale each row's scores."""
        t = 1 + torch.tanh(self.sharpness(given.x)).transpose(1, 2)
        return super().scores(given, rows) * t[:, :, rows, None]
