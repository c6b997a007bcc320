"""Softplus (Gao and Spratling 2025, arXiv:2501.13428): softplus(s_ij) / sum_l softplus(s_il).

The paper's scaling by the length and its re-weighting by a power are left out.
"""

from __future__ import annotations

from torch.nn import functional as F

from interp.planted.variants.rule import MapBlock, Rule, SeenBlock


class SoftplusRule(Rule):
    """Linear, not exponential, in large scores."""

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Normalise the softplus over visible keys."""
        found = F.softplus(scores) * seen
        return found / found.sum(-1, keepdim=True)
