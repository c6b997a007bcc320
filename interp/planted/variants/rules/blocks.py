"""Block-local (Qiu et al. 2019, arXiv:1911.02972): softmax within blocks of 8 positions."""

from __future__ import annotations

from interp.planted.variants.rule import Chosen, Projected, Rule, SeenBlock

BLOCK = 8


class BlocksRule(Rule):
    """No row sees another block."""

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep earlier positions of the row's block."""
        same = rows[:, None] // BLOCK == given.every // BLOCK
        return same & (given.every <= rows[:, None])
