"""Softplus with a power (Gao and Spratling 2025, arXiv:2501.13428): softplus(s)^3, normalised.

The paper's scaling by the length and its offset before the power are left out.
"""

from __future__ import annotations

from torch.nn import functional as F

from interp.planted.variants.rule import MapBlock, Rule, SeenBlock

POWER = 3


class SoftplusPowerRule(Rule):
    """Re-weighting by a power sharpens weights that are linear in large scores."""

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Normalise the power over visible keys."""
        found = F.softplus(scores) ** POWER * seen
        return found / found.sum(-1, keepdim=True)
