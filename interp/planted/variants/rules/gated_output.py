"""Gated attention (Qiu et al. 2025, arXiv:2505.06708): softmax, then sigmoid(W x) on z."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from interp.planted.variants.rule import Heads, Projected, Rule, RuleShape


class GatedOutputRule(Rule):
    """A head can be closed without a sink."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.gate = nn.Linear(shape.d_model, self.d_out, bias=False)

    def after(self, z: Heads, given: Projected) -> Tensor:
        """Gate each entry of the heads' outputs."""
        return torch.sigmoid(self.gate(given.x)) * super().after(z, given)
