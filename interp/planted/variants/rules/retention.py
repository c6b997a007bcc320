"""Retention (Sun et al. 2023, RetNet, arXiv:2307.08621): q_i . k_j g_h^(i - j), g_h = 1 - 2^(-5-h).

A norm per head and a SiLU gate follow; the rotation of queries and keys is left out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from interp.planted.variants.rule import (
    Chosen,
    Heads,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    head_norm,
)


class RetentionRule(Rule):
    """A decay with the distance instead of a normalisation."""

    signed = True
    row_sum = "any"
    decay: Tensor

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.gate = nn.Linear(shape.d_model, self.d_out, bias=False)
        self.register_buffer("decay", 1 - 2.0 ** (-5 - torch.arange(shape.n_heads)))

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return decayed products."""
        seen = self.seen(given, rows)
        gap = (rows[:, None] - given.every).clamp_min(0)
        return self.scores(given, rows) * self.decay[:, None, None] ** gap * seen

    def mix(self, given: Projected) -> Heads:
        """Run the recurrence S_t = g S_{t-1} + k_t v_t', z_t = q_t S_t."""
        q = given.q * given.q.shape[-1] ** -0.5
        state, found = 0.0, []
        for t in given.every.tolist():
            state = self.decay[:, None, None] * state
            state = state + given.k[:, :, t, :, None] * given.v[:, :, t, None]
            found.append((q[:, :, t, None] @ state)[:, :, 0])
        return torch.stack(found, 2)

    def after(self, z: Heads, given: Projected) -> Tensor:
        """Normalise each head, then gate."""
        return F.silu(self.gate(given.x)) * super().after(head_norm(z), given)
