"""Talking heads (Shazeer et al. 2020, arXiv:2003.02436): heads mixed around the softmax.

M_h = sum_g W[h, g] softmax(sum_f P[g, f] s_f).
"""

from __future__ import annotations

from collections.abc import Callable

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
    """The attention of each head depends on the scores of all heads."""

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
        softmaxes = self.parts(given)["mixed"](rows)
        return torch.einsum("hg,bgij->bhij", self.behind, softmaxes)

    def parts(self, given: Projected) -> dict[str, Callable[[Chosen], MapBlock]]:
        """Return the softmaxes of each head's own scores, and those that are mixed."""

        def mixed(rows: Chosen) -> MapBlock:
            scores = torch.einsum("gf,bfij->bgij", self.before, self.scores(given, rows))
            return masked_softmax(scores, self.seen(given, rows))

        def own(rows: Chosen) -> MapBlock:
            return masked_softmax(self.scores(given, rows), self.seen(given, rows))

        return {"own": own, "mixed": mixed}
