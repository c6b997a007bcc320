"""Linear attention with a feature map: normalised products of features, by running sums."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from interp.planted.variants.rule import Chosen, Heads, MapBlock, Projected, Rule


class FeatureRule(Rule, ABC):
    """M[i, j] = phi(q_i) . phi(k_j) / sum over visible l of phi(q_i) . phi(k_l)."""

    least: ClassVar[float] = 1e-6  # added to the sum

    @abstractmethod
    def feature(self, x: Heads, given: Projected) -> Tensor:
        """Return phi of queries or keys."""

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return rows of the normalised products."""
        q, k = self.feature(given.q, given), self.feature(given.k, given)
        products = (q[:, :, rows] @ k.mT) * self.seen(given, rows)
        return products / (products.sum(-1, keepdim=True) + self.least)

    def mix(self, given: Projected) -> Heads:
        """Return the quotient of two running sums, over which no map is formed."""
        q, k = self.feature(given.q, given), self.feature(given.k, given)
        states = (k[..., :, None] * given.v[..., None, :]).cumsum(2)
        total = (q * k.cumsum(2)).sum(-1, keepdim=True) + self.least
        return (q[..., None, :] @ states)[..., 0, :] / total
