"""Talking heads (Shazeer et al. 2020, arXiv:2003.02436): heads mixed around the softmax.

M_h = sum_g W[h, g] softmax(sum_f P[g, f] s_f).
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import (
    Chosen,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    masked_softmax,
)


class TalkingHeadsRule(Rule):
    """What a head attends to depends on the scores of all heads."""

    signed = True
    row_sum = "constant"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (shape.n_heads, shape.n_heads)
        self.before, self.behind = (
            nn.Parameter(torch.eye(shape.n_heads) + 0.3 * torch.randn(size)) for _ in range(2)
        )

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Mix scores, then softmaxes."""
        mixed = torch.einsum("gf,bfij->bgij", self.before, self.scores(given, rows))
        softmaxes = masked_softmax(mixed, self.seen(given, rows))
        return torch.einsum("hg,bgij->bhij", self.behind, softmaxes)
