"""Dilated window (Beltagy et al. 2020, Longformer, arXiv:2004.05150): each second of the last 8."""

from __future__ import annotations

from interp.planted.variants.rule import Chosen, Projected, Rule, SeenBlock

WINDOW, STEP = 8, 2


class DilatedRule(Rule):
    """A row sees itself and each second position before it."""

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep distances that are even and small."""
        gap = rows[:, None] - given.every
        return (gap >= 0) & (gap < WINDOW) & (gap % STEP == 0)
