"""Efficient attention (Shen et al. 2018, arXiv:1812.01243): softmax of features and of positions.

M = softmax_c(q) softmax_j(k)': rows sum to 1. It sees later positions.
"""

from __future__ import annotations

from interp.planted.variants.rule import Chosen, Heads, MapBlock, Projected, Rule


class TwoSoftmaxesRule(Rule):
    """Each feature of the keys is a pattern over positions; queries mix these patterns."""

    causal = False

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Mix the features' patterns."""
        return given.q[:, :, rows].softmax(-1) @ given.k.softmax(2).mT

    def mix(self, given: Projected) -> Heads:
        """Sum values per feature first."""
        return given.q.softmax(-1) @ (given.k.softmax(2).mT @ given.v)
