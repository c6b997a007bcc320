"""Global and local (Ainslie et al. 2020, ETC, arXiv:2004.08483): last 4, and the first 2 tokens."""

from __future__ import annotations

from interp.planted.variants.rule import Chosen, Projected, Rule, SeenBlock

WINDOW, GLOBAL = 4, 2


class GlobalLocalRule(Rule):
    """A local window, and tokens that all rows see."""

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep the window and the global tokens."""
        gap = rows[:, None] - given.every
        return (gap >= 0) & ((gap < WINDOW) | (given.every < GLOBAL))
