"""Hidden keys (Yan et al. 2021, EL-attention, arXiv:2105.04779): all heads read the states x.

s_ij = (W_k' W_q x_i) . x_j / sqrt(d): the map of softmax attention without stored keys.
"""

from __future__ import annotations

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, Stream


class HiddenKeysRule(Rule):
    """One cache of states serves all heads; nothing is lost."""

    def prepare(self, x: Stream) -> Projected:
        """Move the key matrix to the side of the queries."""
        q, v = self.split(self.query(x)), self.split(self.value(x))
        by_head = self.key.weight.unflatten(0, (self.shape.n_heads, -1))
        shared = x[:, None].expand(-1, self.shape.n_heads, -1, -1)
        return Projected(x, q @ by_head, shared, v)

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return products with the states, scaled by the width of a head."""
        return given.q[:, :, rows] @ given.k.mT * self.shape.d_head**-0.5
