"""Linformer (Wang et al. 2020, arXiv:2006.04768): keys and values of E x, fewer than positions.

z = softmax(q (E k)') (E v) = [softmax(q (E k)') E] v: the map over compressed positions, expanded
to tokens. It sees later positions; E is cut to the length of the prompt.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from interp.planted.variants.rule import Chosen, Heads, MapBlock, Projected, Rule, RuleShape


class CompressedPositionsRule(Rule):
    """Rank at most the number of compressed positions; E has any sign."""

    signed = True
    row_sum = "any"
    causal = False
    slots = 4

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.compress = nn.Parameter(torch.randn(self.slots, shape.length) * self.slots**-0.5)

    def _over_slots(self, given: Projected, rows: Chosen) -> tuple[Tensor, Tensor]:
        """Return the softmax over compressed positions, and E."""
        e = self.compress[:, : len(given.every)]
        scores = given.q[:, :, rows] @ (e @ given.k).mT * given.q.shape[-1] ** -0.5
        return scores.softmax(-1), e

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Expand the map to tokens."""
        weights, e = self._over_slots(given, rows)
        return weights @ e

    def mix(self, given: Projected) -> Heads:
        """Mix compressed values."""
        weights, e = self._over_slots(given, given.every)
        return weights @ (e @ given.v)
