"""Sentinel tokens (Ren et al. 2023, arXiv:2310.08152): spans of 8 are read by their last token.

A row sees its own span, and of each span before it the last position.
"""

from __future__ import annotations

from interp.planted.variants.rule import Chosen, Projected, Rule, SeenBlock

SPAN = 8


class SentinelTokensRule(Rule):
    """One token stands for a span whose keys and values can be dropped."""

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep the row's span, and sentinels of those before."""
        same = rows[:, None] // SPAN == given.every // SPAN
        return (same | (given.every % SPAN == SPAN - 1)) & (given.every <= rows[:, None])
