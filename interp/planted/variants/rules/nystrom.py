"""Nystroem (Xiong et al. 2021, arXiv:2102.03902): softmax(q k~') softmax(q~ k~')^+ softmax(q~ k').

q~ and k~ are means over 4 segments; the pseudoinverse is exact. It sees later positions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from interp.planted.variants.rule import Chosen, Heads, MapBlock, Projected, Rule

LANDMARKS = 4


class NystromRule(Rule):
    """Rank at most the number of landmarks."""

    signed = True
    row_sum = "1"
    causal = False

    def _factors(self, given: Projected, rows: Chosen) -> tuple[Tensor, Tensor, Tensor]:
        """Return the three factors of the map."""
        number = min(LANDMARKS, len(given.every))
        q, k = given.q, given.k
        few_q, few_k = (
            F.adaptive_avg_pool1d(t.flatten(0, 1).mT, number).mT.unflatten(0, t.shape[:2])
            for t in (q, k)
        )
        scale = q.shape[-1] ** -0.5
        pairs = ((q[:, :, rows], few_k), (few_q, few_k), (few_q, k))
        left, middle, right = ((a @ b.mT * scale).softmax(-1) for a, b in pairs)
        return left, torch.linalg.pinv(middle), right

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Multiply the factors."""
        left, middle, right = self._factors(given, rows)
        return left @ middle @ right

    def mix(self, given: Projected) -> Heads:
        """Multiply from the right, over which no map is formed."""
        left, middle, right = self._factors(given, given.every)
        return left @ (middle @ (right @ given.v))
