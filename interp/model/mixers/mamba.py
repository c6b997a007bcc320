"""Mamba-1 and relatives: a selective scan per channel, then a SiLU gate, no norm.

The inputs u of the scan come after a short convolution and an activation, so each of them already
mixes a few positions: the map shows what the recurrence adds to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from interp.model.calls.map_call import MapCall
from interp.model.mixers.channel_call import ChannelCall, by_head, head_width
from interp.model.mixers.mixer import Forward, Mixer, real_positions, refuse_state, register_mixer

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
        maps = torch.cat(runs, 3) if runs else self.u.new_zeros(shape)
        return maps[:, :, :, order.argsort()]

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


class _ScanPerChannel(Mixer):
    """Common base of Mamba and Zamba: the call of a gated scan of channels."""

    projection = "out_proj"
    watched = ("in_proj",)

    def enter(self, module: Any, arguments: Mapping[str, Any]) -> None:
        """Refuse a forward that continues from a cached state."""
        refuse_state(module, arguments)

    def _convolved(self, module: Any, forward: Forward, x: Tensor) -> Tensor:
        """Return inputs of the scan, `[batch, pos, channel]`, zero at padding."""
        x = module.act(module.conv1d.forward(x.transpose(1, 2))[..., : x.shape[1]])
        x = x.transpose(1, 2)
        real = real_positions(forward.arguments, x)
        return x if real is None else x * real[..., None].to(x.dtype)

    def _call(self, scan: SelectiveScan, gate: Tensor) -> ChannelCall:
        def to_projection(z: Tensor) -> Tensor:
            return z.transpose(1, 2).flatten(2) * F.silu(gate)

        return ChannelCall(
            v=scan.u,
            z=scan.output(),
            kind="state space per channel",
            of_channels=scan.rows,
            to_projection=to_projection,
            signed=True,
            row_sum="any",
            values="after a short convolution",
        )


@register_mixer
class SelectiveStateSpace(_ScanPerChannel):
    """Mixers of Mamba, Falcon-Mamba and Jamba; the last two normalise steps and state weights."""

    classes = ("MambaMixer", "FalconMambaMixer", "JambaMambaMixer")
    needs = (
        "in_proj",
        "conv1d",
        "x_proj",
        "dt_proj",
        "act",
        "A_log",
        "D",
        "time_step_rank",
        "ssm_state_size",
        "intermediate_size",
    )

    def read(self, module: Any, forward: Forward) -> MapCall:
        """Return the scan's maps; z is the output of the recurrence before the gate."""
        x, gate = forward.returned["in_proj"].chunk(2, -1)
        u = self._convolved(module, forward, x)
        states = module.ssm_state_size
        sizes = [module.time_step_rank, states, states]
        parts = module.x_proj.forward(u).split(sizes, -1)
        norms = (getattr(module, f"{n}_layernorm", None) for n in ("dt", "b", "c"))
        dt, b, c = (p if n is None else n.forward(p) for n, p in zip(norms, parts, strict=True))
        dt = F.softplus(module.dt_proj.forward(dt)).float()
        width = head_width(u.shape[-1])
        return self._call(
            SelectiveScan(
                u=by_head(u, width).float(),
                dt=by_head(dt, width).mT,
                a=-torch.exp(module.A_log.float()).unflatten(0, (-1, width)),
                b=b.float()[:, None],
                c=c.float()[:, None],
                d=module.D.float().unflatten(0, (-1, width)),
            ),
            gate,
        )


@register_mixer
class SelectiveStateSpaceOfHeads(_ScanPerChannel):
    """Mixer of Zamba: inputs and gates alternate by channel; heads have their own weights."""

    classes = ("ZambaMambaMixer",)
    needs = (
        "in_proj",
        "conv1d",
        "x_proj_weight",
        "dt_proj_weight",
        "dt_proj_bias",
        "act",
        "A_log",
        "D",
        "time_step_rank",
        "ssm_state_size",
        "n_mamba_heads",
    )

    def read(self, module: Any, forward: Forward) -> MapCall:
        """Return the scans' maps; z is the output of the recurrences before the gate."""
        x, gate = forward.returned["in_proj"].unflatten(-1, (-1, 2)).unbind(-1)
        u = self._convolved(module, forward, x)
        groups, states = module.n_mamba_heads, module.ssm_state_size
        grouped = u.unflatten(-1, (groups, -1)).transpose(1, 2)  # batch group pos channel
        parts = grouped @ module.x_proj_weight.mT
        dt, b, c = parts.split([module.time_step_rank, states, states], -1)
        dt = dt @ module.dt_proj_weight.mT + module.dt_proj_bias[:, None]
        dt = F.softplus(dt).transpose(1, 2).flatten(2).float()
        width = head_width(u.shape[-1], groups)
        return self._call(
            SelectiveScan(
                u=by_head(u, width).float(),
                dt=by_head(dt, width).mT,
                a=-torch.exp(module.A_log.float()).reshape(-1, width, states),
                b=b.float(),
                c=c.float(),
                d=module.D.float().reshape(-1, width),
            ),
            gate,
        )
