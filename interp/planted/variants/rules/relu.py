"""ReLU (Wortsman et al. 2023, arXiv:2309.08586): M[i, j] = relu(s_ij) / n_i.

n_i is the number of visible keys.
"""

from __future__ import annotations

from interp.planted.variants.rule import MapBlock, Rule, SeenBlock


class ReluRule(Rule):
    """Rectified scores over the number of keys."""

    row_sum = "any"

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Return the positive parts of visible scores over their number."""
        return scores.relu() * seen / seen.sum(-1, keepdim=True)
