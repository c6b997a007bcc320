"""Weighted groups (Chinnakonduru and Mohapatra 2024, arXiv:2407.10855): weighted means of keys.

Two heads share k = a_1 W_1 x + a_2 W_2 x, and values likewise, with learned weights.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Heads, Projected, Rule, RuleShape, Stream


class WeightedGroupsRule(Rule):
    """Grouped queries whose keys and values are learned mixtures of those of the heads."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.size = 2 if shape.n_heads % 2 == 0 else 1
        drawn = torch.randn(2, shape.n_heads, 1, 1)
        self.share = nn.Parameter(1 / self.size + 0.3 * drawn)

    def _grouped(self, x: Heads, share: torch.Tensor) -> Heads:
        groups = (x * share).unflatten(1, (-1, self.size)).sum(2)
        return groups.repeat_interleave(self.size, 1)

    def prepare(self, x: Stream) -> Projected:
        """Mix keys and values within groups."""
        given = super().prepare(x)
        given.k, given.v = (
            self._grouped(t, share) for t, share in zip((given.k, given.v), self.share, strict=True)
        )
        return given
