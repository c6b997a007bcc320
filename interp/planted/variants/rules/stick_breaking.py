"""Stick-breaking (Tan et al. 2024, arXiv:2410.17980): b_ij prod over l in j+1..i-1 of (1 - b_il).

b = sigmoid(s) for j < i, so nearer keys take their share first; a row's own position is hidden.
"""

from __future__ import annotations

from torch.nn import functional as F

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, SeenBlock


class StickBreakingRule(Rule):
    """Recency without positions; what no key takes is lost."""

    row_sum = "at most 1"

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Hide the row's own position."""
        return given.every < rows[:, None]

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Multiply by what nearer keys have left."""
        left = F.logsigmoid(-scores) * seen
        nearer = left.flip(-1).cumsum(-1).flip(-1) - left
        return (F.logsigmoid(scores) + nearer).exp() * seen
