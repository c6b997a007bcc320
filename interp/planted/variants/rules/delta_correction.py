"""Delta correction (Willette et al. 2025, arXiv:2505.11254): sparse rows plus a dense difference.

M_i = S_i + D_b - S_b for the last row b <= i that is a multiple of 4; S sees the first 2 tokens and
the last 4, D sees all.
"""

from __future__ import annotations

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, masked_softmax

EVERY, FIRST, LAST = 4, 2, 4


class DeltaCorrectionRule(Rule):
    """Sparse attention borrows the part that it misses from a dense row nearby."""

    signed = True

    def _sparse(self, given: Projected, rows: Chosen) -> MapBlock:
        gap = rows[:, None] - given.every
        kept = (gap >= 0) & ((gap < LAST) | (given.every < FIRST))
        return masked_softmax(self.scores(given, rows), kept)

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Add the difference of the dense row to the sparse ones."""
        base = rows // EVERY * EVERY
        return self._sparse(given, rows) + super().rows(given, base) - self._sparse(given, base)
