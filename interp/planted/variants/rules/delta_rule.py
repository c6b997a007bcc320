"""Delta rule (Yang et al. 2024, DeltaNet, arXiv:2406.06484): a key's old value is replaced.

S_t = S_{t-1} + b_t k_t (v_t - S_{t-1}' k_t)', z_t = S_t' q_t with keys of norm 1, so
M = tril(q k') (I + tril(b k k', -1))^-1 diag(b).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from interp.planted.variants.rule import Chosen, Heads, MapBlock, Projected, Rule, RuleShape, Stream


class DeltaRule(Rule):
    """Linear attention that corrects what its state returns for a key."""

    signed = True
    row_sum = "any"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.rate = nn.Linear(shape.d_model, shape.n_heads)

    def prepare(self, x: Stream) -> Projected:
        """Normalise queries and keys; add the rates b."""
        given = super().prepare(x)
        given.q, given.k = (F.normalize(t, dim=-1) for t in (given.q, given.k))
        given.more["rate"] = torch.sigmoid(self.rate(x)).transpose(1, 2)
        return given

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Solve the triangular system for the requested rows."""
        rate, length = given.more["rate"], len(given.every)
        products = (rate[..., None] * (given.k @ given.k.mT)).tril(-1)
        system = products + torch.eye(length, device=products.device, dtype=products.dtype)
        asked = (given.q[:, :, rows] @ given.k.mT) * self.seen(given, rows)
        solved = torch.linalg.solve_triangular(system, asked, upper=False, left=False)
        return solved * rate[:, :, None]

    def mix(self, given: Projected) -> Heads:
        """Run the recurrence."""
        batch, heads, length, width = given.k.shape
        state, found = given.v.new_zeros(batch, heads, width, width), []
        for t in range(length):
            k, rate = given.k[:, :, t, :, None], given.more["rate"][:, :, t, None, None]
            wrong = given.v[:, :, t, None] - k.mT @ state
            state = state + rate * k * wrong
            found.append((given.q[:, :, t, None] @ state)[:, :, 0])
        return torch.stack(found, 2)
