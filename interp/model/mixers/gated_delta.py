"""Gated delta rule (Yang et al. 2024, arXiv:2412.06464): a decay, then an update of keys by error.

With G[i, j] the decay from j to i and b the learning rates, M = (q k' * G) (I + T)^-1 diag(b),
where T is the part of b k k' * G below the diagonal. The inverse couples all positions up to a row,
so the system is solved for the requested rows. Queries, keys and values come after a short
convolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.activations import ACT2FN

from interp.model.mixers.map_call import MapCall
from interp.model.mixers.mixer import Forward, Mixer, refuse_state, register_mixer


@register_mixer
class GatedDelta(Mixer):
    """Linear attention of Qwen3-Next: a norm per head follows, then a SiLU gate."""

    classes = ("Qwen3NextGatedDeltaNet",)
    needs = ("in_proj_qkvz", "in_proj_ba", "conv1d", "norm", "A_log", "dt_bias", "activation",
             "head_k_dim", "head_v_dim", "key_dim", "value_dim", "num_v_heads",
             "num_k_heads", "fix_query_key_value_ordering")  # fmt: skip
    projection = "out_proj"
    watched = ("in_proj_qkvz", "in_proj_ba", "norm")

    def enter(self, module: Any, arguments: Mapping[str, Any]) -> None:
        """Refuse a forward that continues from a cached state."""
        refuse_state(module, arguments)

    def read(self, module: Any, forward: Forward) -> MapCall:
        """Return the map of each value head; z is what the module's norm received."""
        scanned, gate = forward.given["norm"]
        projected = forward.returned["in_proj_qkvz"]
        batch, length = projected.shape[:2]
        heads = module.num_v_heads
        *parts, _, b, a = module.fix_query_key_value_ordering(
            projected, forward.returned["in_proj_ba"]
        )
        mixed = torch.cat([x.reshape(batch, length, -1) for x in parts], -1).transpose(1, 2)
        mixed = module.conv1d.forward(mixed)[..., :length].transpose(1, 2)
        mixed = ACT2FN[module.activation](mixed)
        q, k, v = mixed.split([module.key_dim, module.key_dim, module.value_dim], -1)
        q, k = (
            _normalised(x.reshape(batch, length, -1, module.head_k_dim))
            .repeat_interleave(heads // module.num_k_heads, 2)
            .transpose(1, 2)
            for x in (q, k)
        )
        q = q * module.head_k_dim**-0.5
        rate = b.sigmoid().float().transpose(1, 2)
        steps = -module.A_log.float().exp() * F.softplus(a.float() + module.dt_bias)
        steps = steps.double().transpose(1, 2).cumsum(-1)

        def of_rows(rows: Tensor) -> Tensor:
            return _rows_of_rule(q, k, rate, steps, rows)

        def to_projection(z: Tensor) -> Tensor:
            flat = z.transpose(1, 2).reshape(scanned.shape).to(scanned.dtype)
            return module.norm.forward(flat, gate).reshape(batch, length, -1)

        return MapCall(
            v=v.reshape(batch, length, heads, -1).transpose(1, 2),
            z=scanned.view(batch, length, heads, -1).transpose(1, 2),
            kind="gated delta rule",
            of_rows=of_rows,
            to_projection=to_projection,
            signed=True,
            row_sum="any",
        )


def _normalised(x: Tensor) -> Tensor:
    """Divide by the norm as the family's code does, with a small number under the root."""
    x = x.float()
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def _rows_of_rule(q: Tensor, k: Tensor, rate: Tensor, steps: Tensor, rows: Tensor) -> Tensor:
    """Return rows of the map by running the rule backwards from each row.

    The adjoint of the recurrence S_t = (g_t S_{t-1}) (I - b_t k_t k_t') + b_t v_t k_t' is a vector
    per row, so memory is linear in the number of positions: a row's weight on j is b_j k_j . r_j,
    where r_i = q_i, and r_{j-1} = g_j (r_j - b_j (k_j . r_j) k_j).
    """
    batch, heads, length, width = k.shape
    gates = steps.diff(dim=-1, prepend=torch.zeros_like(steps[..., :1])).exp().float()
    out = k.new_zeros(batch, heads, len(rows), length)
    r = k.new_zeros(batch, heads, len(rows), width)
    for j in range(int(rows.max()) if len(rows) else -1, -1, -1):
        starts = (rows == j)[:, None]
        r = torch.where(starts, q[:, :, j, None], r)
        weight = rate[:, :, j, None] * (r @ k[:, :, j, :, None])[..., 0]
        out[..., j] = weight
        r = gates[:, :, j, None, None] * (r - weight[..., None] * k[:, :, j, None])
    return out
