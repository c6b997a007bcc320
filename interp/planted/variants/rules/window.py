"""Window (Beltagy et al. 2020, Longformer, arXiv:2004.05150): softmax over the last 4 positions."""

from __future__ import annotations

from interp.planted.variants.rule import Chosen, Projected, Rule, SeenBlock

WINDOW = 4  # positions, the row itself included


class WindowRule(Rule):
    """A row sees itself and the positions just before it."""

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Hide what lies before the window."""
        gap = rows[:, None] - given.every
        return (gap >= 0) & (gap < WINDOW)
