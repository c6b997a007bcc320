"""Recurrences: a state that decays or is corrected, token by token."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.forms.rule import (
    Chosen,
    Heads,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    Stream,
    turned_by_place,
)


class RetentionAttention(Rule):
    """Retention (Sun et al. 2023, RetNet, arXiv:2307.08621): q_i . k_j g_h^(i - j).

    g_h = 1 - 2^(-5-h); queries and keys are turned by their places (rotary positions). A norm per
    head and a SiLU gate follow. A decay with the distance instead of a normalisation.
    """

    signed = True
    row_sum = "any"
    output_norm = True
    own_positions = True
    decay: Tensor

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.gate = nn.Linear(shape.d_model, self.d_out, bias=False)
        self.register_buffer("decay", 1 - 2.0 ** (-5 - torch.arange(shape.n_heads)))

    def prepare(self, x: Stream) -> Projected:
        """Turn queries and keys by their places."""
        given = super().prepare(x)
        given.q, given.k = (turned_by_place(t, given.every) for t in (given.q, given.k))
        return given

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return decayed products."""
        seen = self.seen(given, rows)
        gap = (rows[:, None] - given.every).clamp_min(0)
        return self.scores(given, rows) * self.decay[:, None, None] ** gap * seen

    def mix(self, given: Projected) -> Heads:
        """Run the recurrence S_t = g S_{t-1} + k_t v_t', z_t = q_t S_t."""
        return decayed_state(given, lambda t: self.decay[:, None, None])

    def after(self, z: Heads, given: Projected) -> Tensor:
        """Gate each normalised head."""
        return F.silu(self.gate(given.x)) * super().after(z, given)


class GatedLinearAttention(Rule):
    """Gated linear attention (Yang et al. 2023, arXiv:2312.06635): a decay per channel, of x.

    M[i, j] = sum_c q_ic k_jc prod over l in j+1..i of a_lc, with a = sigmoid(W x)^(1/16). A
    norm per head and a SiLU gate follow. A recurrence that forgets each channel of its keys at
    a rate of its own.
    """

    signed = True
    row_sum = "any"
    output_norm = True

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
        decay = given.more["log_decay"].exp()
        return decayed_state(given, lambda t: decay[:, :, t, :, None])

    def after(self, z: Heads, given: Projected) -> Tensor:
        """Gate each normalised head."""
        return F.silu(self.gate(given.x)) * super().after(z, given)


class DeltaRuleAttention(Rule):
    """Delta rule (Yang et al. 2024, DeltaNet, arXiv:2406.06484): a key's old value is replaced.

    S_t = S_{t-1} + b_t k_t (v_t - S_{t-1}' k_t)', z_t = S_t' q_t with keys of norm 1, so M =
    tril(q k') (I + tril(b k k', -1))^-1 diag(b). Linear attention that corrects what its state
    returns for a key.
    """

    signed = True
    row_sum = "any"
    unit_norm = True

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.rate = nn.Linear(shape.d_model, shape.n_heads)

    def prepare(self, x: Stream) -> Projected:
        """Add the rates b."""
        given = super().prepare(x)
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


class LongConvolutionAttention(Rule):
    """Long convolution (Massaroli et al. 2023, arXiv:2310.18780): g_h[i - j] q_i . k_j.

    Laughing Hyena. A learned filter of the distance, times 0.9^(i - j), stands between gates q
    and k / sqrt(d). The implicit map of a gated convolution with several heads.
    """

    signed = True
    row_sum = "any"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.filter = nn.Parameter(torch.randn(shape.n_heads, shape.length))

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Weight products by the filter at their distance."""
        gap = (rows[:, None] - given.every).clamp_min(0)
        fading = torch.full_like(given.q[0, 0, 0, 0], 0.9) ** gap
        kernel = self.filter[:, gap] * fading
        return self.scores(given, rows) * kernel * self.seen(given, rows)


def decayed_state(given: Projected, decay: Callable[[int], Tensor]) -> Heads:
    """Run S_t = decay(t) S_{t-1} + k_t v_t' and return q_t S_t / sqrt(d)."""
    q = given.q * given.q.shape[-1] ** -0.5
    state, found = 0.0, []
    for t in given.every.tolist():
        state = decay(t) * state
        state = state + given.k[:, :, t, :, None] * given.v[:, :, t, None]
        found.append((q[:, :, t, None] @ state)[:, :, 0])
    return torch.stack(found, 2)
