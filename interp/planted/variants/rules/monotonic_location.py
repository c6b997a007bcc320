"""Monotonic location (Chowdhury and Caragea 2023, arXiv:2305.20019): a place that moves forward.

m_i = sum over l <= i of sigmoid(w . x_l); M_ij ~ exp(-(j - m_i)^2 / 2) over visible keys.
"""

from __future__ import annotations

from torch import nn

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape, Stream


class MonotonicLocationRule(Rule):
    """No queries and no keys: tokens say how far the place moves."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        del self.query, self.key
        self.step = nn.Linear(shape.d_model, shape.n_heads)

    def prepare(self, x: Stream) -> Projected:
        """Add the places."""
        v = self.split(self.value(x))
        given = Projected(x, v, v, v)
        given.more["place"] = self.step(x).sigmoid().cumsum(1).transpose(1, 2)
        return given

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return the logarithms of Gaussians at the places."""
        return -(given.every - given.more["place"][:, :, rows, None]).square() / 2
