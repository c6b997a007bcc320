"""Mamba-2 and relatives (Dao and Gu 2024, arXiv:2405.21060): a decay of one number per head.

With h_t = exp(dt_t A) h_{t-1} + dt_t B_t u_t and y_t = C_t h_t + D u_t, head by head,
M[i, j] = C_i . B_j exp(A sum of dt over j+1..i) dt_j, plus D where i = j. The values u come after
the short convolution, so each of them already mixes a few positions: the map shows what the
recurrence adds to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from interp.model.calls.map_call import MapCall
from interp.model.mixers.mixer import Forward, Mixer, real_positions, refuse_state, register_mixer


def decay(log_decay: Tensor, rows: Tensor) -> Tensor:
    """Return exp(sum of log decays over j+1..i), 0 where j > i."""
    later = torch.arange(log_decay.shape[-1], device=rows.device) > rows[:, None]
    gap = log_decay[:, :, rows, None] - log_decay[:, :, None, :]
    return gap.masked_fill_(later, -torch.inf).exp_()


@register_mixer
class StateSpace(Mixer):
    """Mixers of Mamba-2, Bamba, Granite 4, Zamba2, Falcon-H1: a gated norm follows the scan.

    Falcon-H1 may have a gate without a norm, and multiplies what enters.
    """

    classes = (
        "Mamba2Mixer",
        "BambaMixer",
        "GraniteMoeHybridMambaLayer",
        "NemotronHMamba2Mixer",
        "Zamba2MambaMixer",
        "FalconH1Mixer",
    )
    needs = (
        "in_proj",
        "conv1d",
        "norm",
        "act",
        "A_log",
        "D",
        "dt_bias",
        "time_step_limit",
        "num_heads",
        "head_dim",
        "n_groups",
        "ssm_state_size",
        "conv_dim",
        "intermediate_size",
    )
    projection = "out_proj"
    watched = ("in_proj",)
    noticed = ("norm",)

    def enter(self, module: Any, arguments: Mapping[str, Any]) -> None:
        """Refuse a forward that continues from a cached state."""
        refuse_state(module, arguments)

    def read(self, module: Any, forward: Forward) -> MapCall:
        """Return the scan's map per head; z is what the module's norm received."""
        projected = forward.returned["in_proj"] * getattr(module, "mup_vector", 1)
        batch, length, width = *projected.shape[:2], module.intermediate_size
        heads, groups, states = module.num_heads, module.n_groups, module.ssm_state_size
        gate, mixed, dt = projected.split([width, module.conv_dim, heads], -1)
        mixed = module.act(module.conv1d.forward(mixed.transpose(1, 2))[..., :length])
        mixed = mixed.transpose(1, 2)
        real = real_positions(forward.arguments, mixed)
        mixed = mixed if real is None else mixed * real[..., None].to(mixed.dtype)
        u, b, c = mixed.split([width, groups * states, groups * states], -1)
        b, c = (x.float().view(batch, length, groups, states).transpose(1, 2) for x in (b, c))
        dt = F.softplus(dt + module.dt_bias).clamp(*module.time_step_limit).transpose(1, 2)
        a = -torch.exp(module.A_log.float())
        steps = (dt.double() * a.double()[:, None]).cumsum(-1)

        def of_rows(rows: Tensor) -> Tensor:
            products = (c[:, :, rows] @ b.mT).repeat_interleave(heads // groups, 1)
            map_rows = products * decay(steps, rows).float() * dt.float()[:, :, None]
            same = torch.arange(length, device=rows.device) == rows[:, None]
            return map_rows + module.D.float()[:, None, None] * same

        v = u.view(batch, length, heads, -1).transpose(1, 2)
        if "norm" in forward.given:
            z = forward.given["norm"][0].view(batch, length, heads, -1).transpose(1, 2)
        else:
            each = heads // groups
            b_each, c_each = (x.repeat_interleave(each, 1) for x in (b, c))
            z = _scan(v.float(), b_each, c_each, dt.float(), a)
            z = z + v * module.D.float()[:, None, None]

        def to_projection(z: Tensor) -> Tensor:
            flat = z.transpose(1, 2).reshape(batch, length, width).to(u.dtype)
            if "norm" not in forward.given:
                return flat * F.silu(gate)
            return module.norm.forward(flat, *forward.given["norm"][1:])

        return MapCall(
            v=v,
            z=z,
            kind="state space",
            of_rows=of_rows,
            to_projection=to_projection,
            signed=True,
            row_sum="any",
            values="after a short convolution",
        )


def _scan(u: Tensor, b: Tensor, c: Tensor, dt: Tensor, a: Tensor) -> Tensor:
    """Run the recurrence with a state per head, `[batch, head, pos, d_v]`."""
    state = u.new_zeros(*u.shape[:2], b.shape[-1], u.shape[-1])
    out = torch.empty_like(u)
    for t in range(u.shape[2]):
        step = dt[:, :, t, None, None]
        grown = b[:, :, t, :, None] * u[:, :, t, None]
        state = torch.exp(step * a[:, None, None]) * state + step * grown
        out[:, :, t] = (c[:, :, t, None] @ state)[:, :, 0]
    return out
