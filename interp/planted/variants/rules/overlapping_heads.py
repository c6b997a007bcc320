"""Overlapping heads (Zhang and Wang 2024, arXiv:2410.14874): heads share features with neighbours.

Head h has its own features of queries, keys and values and one more on each side of them.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from interp.planted.variants.rule import Heads, Rule

SHARED = 1  # features of the neighbour on each side


class OverlappingHeadsRule(Rule):
    """Outputs of all heads are wider than the model."""

    @property
    def d_out(self) -> int:
        """Width with the shared features."""
        return self.shape.n_heads * (self.shape.d_head + 2 * SHARED)

    def split(self, x: Tensor) -> Heads:
        """Cut overlapping pieces; zeros stand beside the first and the last head."""
        width = self.shape.d_head
        return F.pad(x, (SHARED, SHARED)).unfold(-1, width + 2 * SHARED, width).transpose(1, 2)
