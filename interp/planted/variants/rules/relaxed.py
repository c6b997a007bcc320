"""Relaxed attention (Lohrenz et al. 2022, arXiv:2209.09735): (1 - g) softmax(s) + g / n_i.

n_i is the number of visible keys; g = 0.1.
"""

from __future__ import annotations

from interp.planted.variants.rule import MapBlock, Rule, SeenBlock, masked_softmax

SHARE = 0.1  # g


class RelaxedRule(Rule):
    """A share of every row is uniform over its visible keys."""

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Mix softmax and uniform weights."""
        return (1 - SHARE) * masked_softmax(scores, seen) + SHARE * seen / seen.sum(
            -1, keepdim=True
        )
