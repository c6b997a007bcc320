"""Selective scan per channel (Gu and Dao 2023, arXiv:2312.00752): rows of its map, and its output.

With h_t = exp(dt_t A) h_{t-1} + dt_t B_t u_t and y_t = C_t h_t + D u_t, channel by channel,
M[i, j] = sum_n C_in B_jn exp(A_n sum of dt over j+1..i) dt_j, plus D where i = j
(Ali et al. 2024, arXiv:2403.01590). Rows are computed in runs of neighbours. The decay to a key
before the run is the decay to its first row times the decay from there, both at most 1, so the keys
before the run are one matrix product; memory is linear in the number of positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

SPAN = 32  # rows of a run


@dataclass(eq=False)
class SelectiveScan:
    """Tensors of one selective scan, in float32; channels are split into heads.

    Args:
        u: inputs of the scan.
        dt: steps of each channel.
        a: decay rates, negative.
        b: input weights of the states, per group of heads.
        c: output weights of the states, per group of heads.
        d: what passes by the states.
    """

    u: Float[Tensor, "batch head pos channel"]
    dt: Float[Tensor, "batch head channel pos"]
    a: Float[Tensor, "head channel state"]
    b: Float[Tensor, "batch group pos state"]
    c: Float[Tensor, "batch group pos state"]
    d: Float[Tensor, "head channel"]

    def __post_init__(self) -> None:
        """Sum the steps; differences of large sums would be coarse in float32."""
        self.steps = self.dt.double().cumsum(-1)

    def _shared(self, x: Tensor, heads: slice) -> Tensor:
        """Return what a group of heads shares, for each of some heads, with an axis of channels."""
        each = self.u.shape[1] // x.shape[1]
        index = torch.arange(self.u.shape[1], device=x.device)[heads] // each
        return x[:, index, None]

    def _decay(self, gap: Tensor, heads: slice) -> Tensor:
        """Return exp(A gap) for sums of steps, with an axis of states."""
        return torch.exp(gap.float()[..., None] * self.a[heads][:, :, None])

    def rows(self, rows: Tensor, heads: slice) -> Float[Tensor, "batch head channel row key_pos"]:
        """Compute rows of the maps of some heads, in any order."""
        order = rows.argsort()
        ordered = rows[order]
        runs, first = [], 0
        while first < len(ordered):
            size = int((ordered[first:] < ordered[first] + SPAN).sum())
            runs.append(self._run(ordered[first : first + size], heads))
            first += size
        batch, length = self.u.shape[0], self.u.shape[2]
        shape = (batch, *self.a[heads].shape[:2], 0, length)
        found = torch.cat(runs, 3) if runs else self.u.new_zeros(shape)
        return found[:, :, :, order.argsort()]

    def _run(self, rows: Tensor, heads: slice) -> Tensor:
        first, last = int(rows[0]), int(rows[-1])
        steps, dt = self.steps[:, heads], self.dt[:, heads]
        b, c = (self._shared(x, heads) for x in (self.b, self.c))
        anchor = steps[..., first, None]
        left = c[..., rows, :] * self._decay(steps[..., rows] - anchor, heads)
        before = self._decay(anchor - steps[..., : first + 1], heads) * b[..., : first + 1, :]
        before = before * dt[..., : first + 1, None]
        out = dt.new_zeros(*dt.shape[:3], len(rows), dt.shape[-1])
        out[..., : first + 1] = left @ before.mT
        for n, row in enumerate(rows.tolist() if last > first else ()):  # keys within the run
            near = slice(first + 1, row + 1)
            weight = self._decay(steps[..., row, None] - steps[..., near], heads) * b[..., near, :]
            out[..., n, near] = (weight @ c[..., row, :, None])[..., 0] * dt[..., near]
        spread = torch.arange(len(rows), device=rows.device)
        out[..., spread, rows] += self.d[heads][..., None]
        return out

    def output(self) -> Float[Tensor, "batch head pos channel"]:
        """Run the recurrence, which the rows are tested against."""
        every = slice(None)
        b, c = (self._shared(x, every) for x in (self.b, self.c))
        state = self.u.new_zeros(*self.dt.shape[:3], self.a.shape[-1])
        out = torch.empty_like(self.u)
        for t in range(self.u.shape[2]):
            dt, u = self.dt[..., t, None], self.u[:, :, t, :, None]
            state = torch.exp(dt * self.a) * state + dt * b[..., t, :] * u
            out[:, :, t] = (state * c[..., t, :]).sum(-1)
        return out + self.u * self.d[:, None]
