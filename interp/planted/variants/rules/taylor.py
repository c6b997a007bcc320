"""Taylor softmax (Nauen et al. 2024, TaylorShift, arXiv:2403.02920): 1 + s + s^2/2, normalised."""

from __future__ import annotations

from interp.planted.variants.rule import MapBlock, Rule, SeenBlock


class TaylorRule(Rule):
    """The exponential's series to second order, which is positive."""

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Normalise the series over visible keys."""
        found = (1 + scores + scores.square() / 2) * seen
        return found / found.sum(-1, keepdim=True)
