"""Latent states (Dolga et al. 2024, Latte, arXiv:2402.17512): attention through a few states.

M_ij = sum_l softmax_l(q_i)_l exp(k_jl) / sum over visible m of exp(k_ml), a state per feature.
"""

from __future__ import annotations

from interp.planted.variants.rule import Chosen, Heads, MapBlock, Projected, Rule


class LatentStatesRule(Rule):
    """A row chooses states, and states choose tokens; rank at most the number of states."""

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Chain the two distributions."""
        weight = (given.k - given.k.amax(2, keepdim=True)).exp()
        share = given.q[:, :, rows].softmax(-1) / weight.cumsum(2)[:, :, rows]
        return share @ weight.mT * self.seen(given, rows)

    def mix(self, given: Projected) -> Heads:
        """Keep a running mean of values per state."""
        weight = (given.k - given.k.amax(2, keepdim=True)).exp()
        sums = (weight[..., None] * given.v[..., None, :]).cumsum(2)
        means = sums / weight.cumsum(2)[..., None]
        return (given.q.softmax(-1)[..., None] * means).sum(3)
