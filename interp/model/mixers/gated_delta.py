"""Gated delta rule (Yang et al. 2024, arXiv:2412.06464): a decay, then an update of keys by error.

With G[i, j] the decay from j to i and b the learning rates, M = (q k' * G) (I + T)^-1 diag(b),
where T is the part of b k k' * G below the diagonal. The inverse couples all positions up to a row,
so the system is solved for the requested rows. Queries, keys and values come after a short
convolution.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.activations import ACT2FN

from interp.model.calls.map_call import MapCall
from interp.model.mixers.mixer import Forward, Mixer, refuse_state, register_mixer


class _DeltaRule(Mixer):
    """Common base of the families: a convolution, the rule, a gated norm per head."""

    norm: ClassVar[str] = "norm"
    projection = "out_proj"

    def enter(self, module: Any, arguments: Mapping[str, Any]) -> None:
        """Refuse a forward that continues from a cached state."""
        refuse_state(module, arguments)

    @abstractmethod
    def rule(self, module: Any, forward: Forward) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values before the convolution, rates, and log decays.

        Log decays have an axis after that of heads: one number, or one for each channel of keys.
        """

    def read(self, module: Any, forward: Forward) -> MapCall:
        """Return the map of each value head; z is what the module's norm received."""
        scanned, gate = forward.given[self.norm]
        mixed, rate, steps = self.rule(module, forward)
        batch, length = mixed.shape[:2]
        heads, key_heads, width = self.sizes(module)
        mixed = module.conv1d.forward(mixed.transpose(1, 2))[..., :length].transpose(1, 2)
        mixed = ACT2FN[module.activation](mixed)
        q, k, v = mixed.tensor_split([key_heads * width, 2 * key_heads * width], -1)
        q, k = (
            _normalised(x.reshape(batch, length, -1, width))
            .repeat_interleave(heads // key_heads, 2)
            .transpose(1, 2)
            for x in (q, k)
        )
        q = q * width**-0.5
        rate, steps = rate.float().transpose(1, 2), steps.float().transpose(1, 2)

        def of_rows(rows: Tensor) -> Tensor:
            return _rows_of_rule(q, k, rate, steps.exp(), rows)

        def to_projection(z: Tensor) -> Tensor:
            flat = z.transpose(1, 2).reshape(scanned.shape).to(scanned.dtype)
            norm = module.get_submodule(self.norm)
            return norm.forward(flat, gate).reshape(batch, length, -1)

        return MapCall(
            v=v.reshape(batch, length, heads, -1).transpose(1, 2),
            z=scanned.reshape(batch, length, heads, -1).transpose(1, 2),
            kind="gated delta rule",
            of_rows=of_rows,
            to_projection=to_projection,
            signed=True,
            row_sum="any",
            values="after a short convolution",
        )

    def sizes(self, module: Any) -> tuple[int, int, int]:
        """Return the numbers of value heads and key heads, and the width of a key head."""
        return module.num_v_heads, module.num_k_heads, module.head_k_dim


def log_decay(module: Any, a: Tensor) -> Tensor:
    """Return the log decay of each head from the output of its projection."""
    return (-module.A_log.float().exp() * F.softplus(a.float() + module.dt_bias))[..., None]


@register_mixer
class GatedDelta(_DeltaRule):
    """Linear attention of Qwen3-Next: a norm per head follows, then a SiLU gate."""

    classes = ("Qwen3NextGatedDeltaNet",)
    needs = (
        "in_proj_qkvz",
        "in_proj_ba",
        "conv1d",
        "norm",
        "A_log",
        "dt_bias",
        "activation",
        "head_k_dim",
        "num_v_heads",
        "num_k_heads",
        "fix_query_key_value_ordering",
    )
    watched = ("in_proj_qkvz", "in_proj_ba", "norm")

    def rule(self, module: Any, forward: Forward) -> tuple[Tensor, Tensor, Tensor]:
        """Order what the two projections return."""
        projected = forward.returned["in_proj_qkvz"]
        *parts, _, b, a = module.fix_query_key_value_ordering(
            projected, forward.returned["in_proj_ba"]
        )
        mixed = torch.cat([x.reshape(*projected.shape[:2], -1) for x in parts], -1)
        return mixed, b.sigmoid(), log_decay(module, a)


@register_mixer
class GatedDeltaOfParts(_DeltaRule):
    """Linear attention of Qwen3.5, with a projection for each quantity."""

    classes = ("Qwen3_5GatedDeltaNet", "Qwen3_5MoeGatedDeltaNet")
    needs = (
        "in_proj_qkv",
        "in_proj_b",
        "in_proj_a",
        "conv1d",
        "norm",
        "A_log",
        "dt_bias",
        "activation",
        "head_k_dim",
        "num_v_heads",
        "num_k_heads",
    )
    watched = ("in_proj_qkv", "in_proj_b", "in_proj_a", "norm")

    def rule(self, module: Any, forward: Forward) -> tuple[Tensor, Tensor, Tensor]:
        """Take what the projections return."""
        mixed, b, a = (forward.returned[f"in_proj_{name}"] for name in ("qkv", "b", "a"))
        return mixed, b.sigmoid(), log_decay(module, a)


@register_mixer
class GatedDeltaOfOlmo(_DeltaRule):
    """Linear attention of OLMo Hybrid; its rates may reach 2, which flips what a key holds."""

    classes = ("OlmoHybridGatedDeltaNet",)
    needs = (
        "q_proj",
        "k_proj",
        "v_proj",
        "a_proj",
        "b_proj",
        "conv1d",
        "o_norm",
        "A_log",
        "dt_bias",
        "activation",
        "head_k_dim",
        "num_v_heads",
        "num_k_heads",
        "allow_neg_eigval",
    )
    norm = "o_norm"
    projection = "o_proj"
    watched = ("q_proj", "k_proj", "v_proj", "a_proj", "b_proj", "o_norm")

    def rule(self, module: Any, forward: Forward) -> tuple[Tensor, Tensor, Tensor]:
        """Join what the projections return."""
        mixed = torch.cat([forward.returned[f"{name}_proj"] for name in "qkv"], -1)
        rate = forward.returned["b_proj"].sigmoid() * (2 if module.allow_neg_eigval else 1)
        return mixed, rate, log_decay(module, forward.returned["a_proj"])


@register_mixer
class KimiDelta(_DeltaRule):
    """Kimi Delta Attention (arXiv:2510.26692): a decay for each channel of the keys."""

    classes = ("KimiLinearDeltaAttention",)
    needs = (
        "q_proj",
        "k_proj",
        "v_proj",
        "b_proj",
        "forget_gate",
        "conv1d",
        "o_norm",
        "activation",
        "head_dim",
        "num_heads",
    )
    norm = "o_norm"
    projection = "o_proj"
    watched = ("q_proj", "k_proj", "v_proj", "b_proj", "forget_gate", "o_norm")

    def rule(self, module: Any, forward: Forward) -> tuple[Tensor, Tensor, Tensor]:
        """Join what the projections return."""
        mixed = torch.cat([forward.returned[f"{name}_proj"] for name in "qkv"], -1)
        return mixed, forward.returned["b_proj"].sigmoid(), forward.returned["forget_gate"]

    def sizes(self, module: Any) -> tuple[int, int, int]:
        """Return the sizes of heads that keys and values share."""
        return module.num_heads, module.num_heads, module.head_dim


def _normalised(x: Tensor) -> Tensor:
    """Divide by the norm as the family's code does, with a small number under the root."""
    x = x.float()
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def _rows_of_rule(q: Tensor, k: Tensor, rate: Tensor, gates: Tensor, rows: Tensor) -> Tensor:
    """Return rows of the map by running the rule backwards from each row.

    The adjoint of the recurrence S_t = S_{t-1} diag(g_t) (I - b_t k_t k_t') + b_t v_t k_t' is a
    vector per row, so memory is linear in the number of positions: a row's weight on j is
    b_j k_j . r_j, where r_i = q_i, and r_{j-1} = g_j (r_j - b_j (k_j . r_j) k_j).
    """
    batch, heads, length, width = k.shape
    out = k.new_zeros(batch, heads, len(rows), length)
    r = k.new_zeros(batch, heads, len(rows), width)
    for j in range(int(rows.max()) if len(rows) else -1, -1, -1):
        starts = (rows == j)[:, None]
        r = torch.where(starts, q[:, :, j, None], r)
        weight = rate[:, :, j, None] * (r @ k[:, :, j, :, None])[..., 0]
        out[..., j] = weight
        r = gates[:, :, j, None] * (r - weight[..., None] * k[:, :, j, None])
    return out
