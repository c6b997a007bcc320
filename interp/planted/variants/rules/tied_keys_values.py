"""Tied keys and values (one projection for both): z_i = sum_j softmax_j(q_i . k_j) k_j."""

from __future__ import annotations

from interp.planted.variants.rule import Projected, Rule, RuleShape, Stream


class TiedKeysValuesRule(Rule):
    """Keys and values are the same vectors."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        del self.value

    def prepare(self, x: Stream) -> Projected:
        """Use keys as values."""
        k = self.split(self.key(x))
        return Projected(x, self.split(self.query(x)), k, k)
