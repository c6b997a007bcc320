"""SparseK (Lou et al. 2024, arXiv:2406.16747): m = clip(u - t, 0, 1) selects 3 keys of a row.

u is a score per token and t makes m sum to 3; M_ij = m_j softmax_j(s_ij) over keys with m_j > 0.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from interp.planted.variants.rule import (
    Chosen,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    Stream,
    masked_softmax,
)


class SparseKRule(Rule):
    """A differentiable choice of k keys."""

    row_sum = "at most 1"
    k = 3

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.score = nn.Linear(shape.d_model, shape.n_heads, bias=False)

    def prepare(self, x: Stream) -> Projected:
        """Add the score of each token."""
        given = super().prepare(x)
        given.more["u"] = self.score(x).transpose(1, 2)
        return given

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Attend to the selected keys, and weight them by their selection."""
        seen = self.seen(given, rows)
        u = given.more["u"][:, :, None].expand(-1, -1, len(rows), -1)
        chosen = sparse_k(u.masked_fill(~seen, -torch.inf), self.k)
        return masked_softmax(self.scores(given, rows), chosen > 0) * chosen


def sparse_k(u: Tensor, k: int) -> Tensor:
    """Project each row on numbers in [0, 1] with the sum k, or as many as are finite."""
    total = u.isfinite().sum(-1, keepdim=True).clamp(max=k).to(u)
    with torch.no_grad():
        low = u.masked_fill(~u.isfinite(), torch.inf).amin(-1, keepdim=True) - 1
        high = u.amax(-1, keepdim=True)
        for _ in range(60):
            middle = (low + high) / 2
            more = (u - middle).clamp(0, 1).sum(-1, keepdim=True) > total
            low, high = torch.where(more, middle, low), torch.where(more, high, middle)
        whole, part = u - high >= 1, (u - high > 0) & (u - high < 1)
    count = part.sum(-1, keepdim=True)
    over = u.masked_fill(~part, 0).sum(-1, keepdim=True) - (total - whole.sum(-1, keepdim=True))
    exact = torch.where(count > 0, over / count.clamp_min(1), high)
    return torch.where(part, (u - exact).clamp(0, 1), whole.to(u))
