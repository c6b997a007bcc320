"""Strided (Child et al. 2019, sparse transformer, arXiv:1904.10509): last 4, then each fourth."""

from __future__ import annotations

from interp.planted.variants.rule import Chosen, Projected, Rule, SeenBlock

STRIDE = 4


class StridedRule(Rule):
    """A local window, and columns at a fixed distance from one another."""

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep the window and the distances that the stride divides."""
        gap = rows[:, None] - given.every
        return (gap >= 0) & ((gap < STRIDE) | (gap % STRIDE == 0))
