"""Low-rank mask (Wei et al. 2023, Sparsifiner, arXiv:2303.13755): a narrow product picks the keys.

Products of projections to width 2 predict connections; the 4 largest, and the row itself, are kept.
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
    Stream,
    among_largest,
)


class LowRankMaskRule(Rule):
    """A cheap predictor chooses, and full scores weigh."""

    kept = 4
    rank = 2

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (2, shape.n_heads, shape.d_model, self.rank)
        self.narrow = nn.Parameter(torch.randn(size), requires_grad=False)

    def prepare(self, x: Stream) -> Projected:
        """Add the narrow queries and keys."""
        given = super().prepare(x)
        given.more["of_row"], given.more["of_key"] = (x[:, None] @ m for m in self.narrow)
        return given

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep keys of the largest predictions."""
        past = super().seen(given, rows)
        found = given.more["of_row"][:, :, rows] @ given.more["of_key"].mT
        found = found.masked_fill(~past, -torch.inf)
        return (among_largest(found, self.kept) | (given.every == rows[:, None])) & past
