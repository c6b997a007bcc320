"""ConvBERT (Jiang et al. 2020, arXiv:2008.02496): half of the heads are dynamic convolutions.

Such a head mixes the tokens within a span around each position, with weights that a softmax makes
from the position's query and its neighbourhood alone. The heads of the ordinary softmax come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from interp.core.errors import UnreadableAttention
from interp.model.calls.map_call import MapCall
from interp.model.mixers.mixer import Forward, Mixer, register_mixer


@register_mixer
class DynamicConvolution(Mixer):
    """Attention of ConvBERT."""

    classes = ("ConvBertAttention",)
    needs = ("self.conv_kernel_layer", "self.conv_out_layer", "self.value")
    projection = "output.dense"
    watched = ("self.value", "self.conv_kernel_layer", "self.conv_out_layer", "self")

    def enter(self, module: nn.Module, arguments: Mapping[str, Any]) -> None:
        """Refuse padding, which the convolution would read.

        Raises:
            UnreadableAttention: a mask hides some tokens.
        """
        mask = arguments.get("attention_mask")
        if not isinstance(mask, Tensor):
            return
        hidden = ~mask if mask.dtype == torch.bool else mask < 0
        if bool(hidden.any()):
            raise UnreadableAttention(
                "the convolutions of ConvBERT read padding like any token, so padded prompts "
                "change its numbers; run prompts of one length together"
            )

    def read(self, module: Any, forward: Forward) -> MapCall:
        """Return the softmax weights, then those of the convolutions in bands."""
        attention, outputs = module.self, forward.returned
        heads, span = attention.num_attention_heads, attention.conv_kernel_size
        context, weights = outputs["self"]
        length = context.shape[1]
        kernel = outputs["self.conv_kernel_layer"].reshape(len(context), length, heads, span)
        places = torch.arange(length, device=context.device)
        offset = places - places[:, None] + (span - 1) // 2
        inside = (offset >= 0) & (offset < span)
        at = offset.clamp(0, span - 1).expand(len(context), heads, length, length)
        bands = kernel.softmax(-1).transpose(1, 2).gather(-1, at) * inside
        whole = torch.cat([weights, bands], 1)
        values = [
            outputs[name].unflatten(-1, (heads, -1))
            for name in ("self.value", "self.conv_out_layer")
        ]
        return MapCall(
            v=torch.cat(values, 2).transpose(1, 2),
            z=context.unflatten(-1, (2 * heads, -1)).transpose(1, 2),
            kind="softmax and dynamic convolution",
            of_rows=lambda rows: whole[:, :, rows],
            to_projection=lambda z: z.transpose(1, 2).flatten(2),
            signed=False,
            row_sum="1; at most 1 for convolutions near the ends",
            seen=lambda rows: whole[:, :, rows] != 0,
        )
