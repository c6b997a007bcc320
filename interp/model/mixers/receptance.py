"""RWKV-4 (Peng et al. 2023, arXiv:2305.13048): a softmax over the past per channel.

The logit of key j for query i is k_j - (i - j - 1) exp(decay) before i, and k_i + first at i
itself. A sigmoid gate follows. Keys and values come after a mix of each position with the one
before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from interp.core.errors import UnreadableAttention
from interp.model.calls.map_call import MapCall
from interp.model.mixers.channel_call import ChannelCall, by_head, head_width
from interp.model.mixers.mixer import Forward, Mixer, register_mixer


@register_mixer
class Receptance(Mixer):
    """Attention of RWKV-4; heads are groups of channels."""

    classes = ("RwkvSelfAttention",)
    needs = ("key", "value", "receptance", "time_decay", "time_first")
    projection = "output"
    watched = ("key", "value", "receptance")

    def enter(self, module: Any, arguments: Mapping[str, Any]) -> None:
        """Refuse a forward that continues from a state."""
        state = arguments.get("state")
        if state is not None and bool(state[3][:, :, module.layer_id].any()):
            raise UnreadableAttention(
                f"{type(module).__name__} continues from a cached state, in which earlier inputs "
                "are not kept apart, so its map cannot be read; run the whole prompt without a "
                "state"
            )

    def read(self, module: Any, forward: Forward) -> MapCall:
        """Return the softmaxes over the past; z is their output before the gate."""
        key, value = forward.returned["key"], forward.returned["value"]
        gate = torch.sigmoid(forward.returned["receptance"])
        length = key.shape[1]
        width = head_width(key.shape[-1])
        k = by_head(key, width).mT.float()
        rate = torch.exp(module.time_decay.float()).view(-1, width)
        first = module.time_first.float().view(-1, width)

        def of_channels(rows: Tensor, some: slice) -> Tensor:
            back = rows[:, None] - torch.arange(length, device=rows.device)
            bonus = torch.where(
                back == 0, first[some][..., None, None], -(back - 1) * rate[some][..., None, None]
            )
            logits = k[:, some][..., None, :] + bonus
            return logits.masked_fill(back < 0, -torch.inf).softmax(-1)

        return ChannelCall(
            v=by_head(value, width),
            z=_weighted_mean(k, by_head(value, width).mT.float(), rate, first).mT,
            kind="softmax per channel",
            of_channels=of_channels,
            to_projection=lambda z: gate * z.transpose(1, 2).flatten(2),
            signed=False,
            row_sum="1",
            values="after a mix with the position before",
        )


def _weighted_mean(k: Tensor, v: Tensor, rate: Tensor, first: Tensor) -> Tensor:
    """Run the recurrence on numerator and denominator, with the largest logit taken out."""
    above = torch.zeros_like(v[..., 0])
    below = torch.zeros_like(above)
    largest = torch.full_like(above, -torch.inf)
    out = torch.empty_like(v)
    for t in range(v.shape[-1]):
        now = torch.maximum(largest, k[..., t] + first)
        old, new = torch.exp(largest - now), torch.exp(k[..., t] + first - now)
        out[..., t] = (old * above + new * v[..., t]) / (old * below + new)
        now = torch.maximum(largest - rate, k[..., t])
        old, new = torch.exp(largest - rate - now), torch.exp(k[..., t] - now)
        above, below, largest = old * above + new * v[..., t], old * below + new, now
    return out
