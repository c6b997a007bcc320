"""Clipped softmax (Bondarenko et al. 2023, arXiv:2306.12929): clip((z - g) softmax(s) + g, 0, 1).

Here z = 1 and g = -0.03, so that small weights are exactly 0.
"""

from __future__ import annotations

from interp.planted.variants.rule import MapBlock, Rule, SeenBlock, masked_softmax

STRETCH, OFFSET = 1.0, -0.03


class ClippedRule(Rule):
    """A head can do nothing without an infinite score."""

    row_sum = "at most 1"

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Stretch the softmax beyond [0, 1], and clip it."""
        return ((STRETCH - OFFSET) * masked_softmax(scores, seen) + OFFSET).clamp(0, 1)
