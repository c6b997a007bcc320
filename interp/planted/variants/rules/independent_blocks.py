"""Independent blocks (Ma et al. 2024, Block-Attention, arXiv:2409.15355): passages apart, then all.

The first 16 positions are passages of 8 that do not see each other; later positions see all.
"""

from __future__ import annotations

from interp.planted.variants.rule import Chosen, Projected, Rule, SeenBlock

BLOCK, PASSAGES = 8, 16


class IndependentBlocksRule(Rule):
    """Passages can be computed once and reused; the question reads them together."""

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep the row's passage, or all earlier positions after the passages."""
        same = rows[:, None] // BLOCK == given.every // BLOCK
        return (same | (rows[:, None] >= PASSAGES)) & (given.every <= rows[:, None])
