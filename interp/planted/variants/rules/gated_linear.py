"""Gated linear attention (Yang et al. 2023, arXiv:2312.06635): a decay per channel, of x.

M[i, j] = sum_c q_ic k_jc prod over l in j+1..i of a_lc, with a = sigmoid(W x)^(1/16). A norm per
head and a SiLU gate follow.
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
    Stream,
    head_norm,
)


class GatedLinearRule(Rule):
    """A recurrence that forgets each channel of its keys at a rate of its own."""

    signed = True
    row_sum = "any"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.gate = nn.Linear(shape.d_model, self.d_out, bias=False)
        self.forget = nn.Linear(shape.d_model, self.d_out)

    def prepare(self, x: Stream) -> Projected:
        """Add the logs of the decays."""
        given = super().prepare(x)
        given.more["log_decay"] = F.logsigmoid(self.split(self.forget(x))) / 16
        return given

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return sums over channels of decayed products, channel by channel."""
        total = given.more["log_decay"].cumsum(2)
        seen = self.seen(given, rows)
        found = 0.0
        for c in range(given.q.shape[-1]):
            gap = total[:, :, rows, None, c] - total[:, :, None, :, c]
            decay = gap.masked_fill(~seen, -torch.inf).exp()
            found = found + given.q[:, :, rows, None, c] * given.k[:, :, None, :, c] * decay
        return found * given.q.shape[-1] ** -0.5  # type: ignore[return-value]

    def mix(self, given: Projected) -> Heads:
        """Run the recurrence S_t = diag(a_t) S_{t-1} + k_t v_t', z_t = q_t S_t."""
        q, decay = given.q * given.q.shape[-1] ** -0.5, given.more["log_decay"].exp()
        state, found = 0.0, []
        for t in given.every.tolist():
            state = decay[:, :, t, :, None] * state
            state = state + given.k[:, :, t, :, None] * given.v[:, :, t, None]
            found.append((q[:, :, t, None] @ state)[:, :, 0])
        return torch.stack(found, 2)

    def after(self, z: Heads, given: Projected) -> Tensor:
        """Normalise each head, then gate."""
        return F.silu(self.gate(given.x)) * super().after(head_norm(z), given)
