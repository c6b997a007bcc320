"""Hydra attention (Bolya et al. 2022, arXiv:2209.07484): as many heads as features.

Head c has M[i, j] = q_ic k_jc of queries and keys of norm 1, not normalised.
"""

from __future__ import annotations

from dataclasses import replace

from torch.nn import functional as F

from interp.planted.variants.rule import Chosen, Heads, MapBlock, Projected, Rule, RuleShape, Stream


class HydraRule(Rule):
    """Heads of width 1, whose map has rank 1 before the causal mask."""

    signed = True
    row_sum = "any"

    def __init__(self, shape: RuleShape):
        super().__init__(replace(shape, n_heads=shape.n_heads * shape.d_head, d_head=1))

    def prepare(self, x: Stream) -> Projected:
        """Return queries and keys of norm 1, one feature per head."""
        q, k = (F.normalize(part(x), dim=-1) for part in (self.query, self.key))
        return Projected(x, self.split(q), self.split(k), self.split(self.value(x)))

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return products of one feature each."""
        return given.q[:, :, rows] @ given.k.mT * self.seen(given, rows)

    def mix(self, given: Projected) -> Heads:
        """Gate a running sum of keys times values by the query."""
        return given.q * (given.k * given.v).cumsum(2)
