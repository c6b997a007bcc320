"""Fixed point (Mathur et al. 2025, Change of Thought, arXiv:2507.13569): attention repeats itself.

q_0 = W x, q_(t+1) = W (x + B z_t) with z_t = softmax(q_t k) v; M is that of the third q.
"""

from __future__ import annotations

from torch import nn

from interp.planted.variants.rule import Projected, Rule, RuleShape, Stream


class FixedPointRule(Rule):
    """Queries take in what they found before the layer writes."""

    rounds = 2

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.back = nn.Linear(self.d_out, shape.d_model, bias=False)

    def prepare(self, x: Stream) -> Projected:
        """Repeat the attention with queries of its own output."""
        given = super().prepare(x)
        for _ in range(self.rounds):
            z = self.rows(given, given.every) @ given.v
            given.q = self.split(self.query(x + self.back(z.transpose(1, 2).flatten(2))))
        return given
