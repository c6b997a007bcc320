"""Rectified linear attention (Zhang et al. 2021, arXiv:2104.07012): relu(s_ij), then a norm of z.

The norm is of each head; a learned gate of the paper is left out.
"""

from __future__ import annotations

from torch import Tensor

from interp.planted.variants.rule import Heads, MapBlock, Projected, Rule, SeenBlock, head_norm


class ReluNormRule(Rule):
    """Rectified scores without a normalisation of the row; the output is normalised instead."""

    row_sum = "any"

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Return the positive parts of visible scores."""
        return scores.relu() * seen

    def after(self, z: Heads, given: Projected) -> Tensor:
        """Normalise each head's output."""
        return super().after(head_norm(z), given)
