"""Candidate blocks (Song et al. 2021, Uni-Encoder, arXiv:2106.01263): candidates beside a context.

The first 8 positions are the context, which sees itself; blocks of 4 after it see the context and
themselves, and no other block.
"""

from __future__ import annotations

from interp.planted.variants.rule import Chosen, Projected, Rule, SeenBlock

CONTEXT, SIZE = 8, 4


class CandidateBlocksRule(Rule):
    """Many candidates share one context and do not know of each other."""

    causal = False

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep the context and the row's own block."""
        of_row = (rows[:, None] - CONTEXT).div(SIZE, rounding_mode="floor")
        of_key = (given.every - CONTEXT).div(SIZE, rounding_mode="floor")
        return (given.every < CONTEXT) | (of_row == of_key)
