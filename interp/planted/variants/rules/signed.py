"""Signed, or Cog (Lv et al. 2024, arXiv:2411.07176): sign(s_ij) exp|s_ij| / sum_l exp|s_il|.

Defined here by this formula; the absolute values of a row sum to 1.
"""

from __future__ import annotations

from interp.planted.variants.rule import MapBlock, Rule, SeenBlock, masked_softmax


class SignedRule(Rule):
    """A head can subtract what it attends to."""

    signed = True
    row_sum = "absolute 1"

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Return the softmax of absolute scores with the scores' signs."""
        return scores.sign() * masked_softmax(scores.abs(), seen)
