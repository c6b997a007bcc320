"""RG-LRU of RecurrentGemma (De et al. 2024, arXiv:2402.19427): a gated decay per channel.

M[i, j] = exp(sum of log decays over j+1..i) g_j, where g is the input gate times the root that
keeps the variance. At position 0 the state starts anew. The values come after a convolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from interp.core.errors import UnreadableAttention
from interp.model.calls.map_call import MapCall
from interp.model.mixers.channel_call import ChannelCall
from interp.model.mixers.mixer import Forward, Mixer, register_mixer


@register_mixer
class GatedRecurrence(Mixer):
    """Recurrent block of RecurrentGemma: heads are the blocks of its gates; a gate follows."""

    classes = ("RecurrentGemmaRecurrentBlock",)
    needs = (
        "linear_y",
        "linear_x",
        "conv_1d",
        "act_fn",
        "rg_lru.recurrent_param",
        "rg_lru.input_gate_weight",
        "rg_lru.input_gate_bias",
        "rg_lru.recurrent_gate_weight",
        "rg_lru.recurrent_gate_bias",
    )
    projection = "linear_out"
    watched = ("linear_x", "linear_y", "rg_lru")

    def enter(self, module: Any, arguments: Mapping[str, Any]) -> None:
        """Refuse a forward that continues from a state, which the module keeps itself."""
        positions = arguments.get("position_ids")
        if isinstance(positions, Tensor) and bool((positions[:, 0] != 0).any()):
            raise UnreadableAttention(
                f"{type(module).__name__} continues from a cached state (its first position is "
                f"{int(positions[:, 0].max())}), in which earlier inputs are not kept apart, so "
                "its map cannot be read; run the whole prompt without a cache"
            )

    def read(self, module: Any, forward: Forward) -> MapCall:
        """Return the maps of the recurrence; z is its output before the gate."""
        unit = module.rg_lru
        u, positions = forward.given["rg_lru"]
        batch, length, channels = u.shape
        heads = len(unit.input_gate_weight)

        def gate(weight: Tensor, bias: Tensor) -> Tensor:
            blocks = u.unflatten(-1, (heads, -1)).transpose(1, 2) @ weight + bias[:, None]
            return torch.sigmoid(blocks).float()  # batch head pos channel

        shrink = F.softplus(unit.recurrent_param.float()).view(heads, 1, -1)
        steps = -8.0 * gate(unit.recurrent_gate_weight, unit.recurrent_gate_bias) * shrink
        reset = (positions == 0).expand(batch, length)
        root = torch.sqrt(-torch.expm1(2 * steps))
        gain = torch.where(reset[:, None, :, None], torch.ones_like(root), root)
        gain = (gain * gate(unit.input_gate_weight, unit.input_gate_bias)).mT
        total = steps.double().masked_fill(reset[:, None, :, None], 0).cumsum(2).mT
        segment = reset.cumsum(1)
        act = module.act_fn(forward.returned["linear_y"])

        def of_channels(rows: Tensor, some: slice) -> Tensor:
            gap = total[:, some][..., rows, None] - total[:, some][..., None, :]
            same = segment[:, rows, None] == segment[:, None]
            same = same & (torch.arange(length, device=rows.device) <= rows[:, None])
            decay = gap.masked_fill(~same[:, None, None], -torch.inf).float().exp()
            return decay * gain[:, some][..., None, :]

        def to_projection(z: Tensor) -> Tensor:
            return z.transpose(1, 2).reshape(batch, length, channels) * act

        return ChannelCall(
            v=u.unflatten(-1, (heads, -1)).transpose(1, 2),
            z=forward.returned["rg_lru"].unflatten(-1, (heads, -1)).transpose(1, 2),
            kind="gated recurrence per channel",
            of_channels=of_channels,
            to_projection=to_projection,
            signed=False,
            row_sum="any",
            values="after a short convolution",
        )
