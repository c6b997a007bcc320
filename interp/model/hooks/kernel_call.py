"""Attention calls as the kernels' `Attention`: the same tensors under the kernels' names."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from interp.model.hooks.calls import Call, ComputedCall
from interp_kernels.problem import Attention


def to_attention(call: Call, real: Tensor, tokens: Tensor | None) -> Attention:
    """An attention call in the words of the kernels."""
    queries, keys = call.z.shape[2], call.v.shape[2]
    same_sequence = queries == keys
    common: dict[str, Any] = {
        "query_padding": None if bool(real.all()) else real,
        "key_padding": real if same_sequence and not bool(real.all()) else None,
        "tokens": tokens if same_sequence else None,
    }
    if isinstance(call, ComputedCall):
        bias, mask = call.bias, call.mask
        if bias is not None and mask is not None:
            mask = mask[..., :keys]
            hidden = ~mask if mask.dtype == torch.bool else mask <= torch.finfo(mask.dtype).min / 2
            bias = bias[..., :keys].masked_fill(hidden, torch.finfo(bias.dtype).min)
            if mask.dtype != torch.bool:
                bias = bias + mask.masked_fill(hidden, 0)
        elif bias is None and mask is not None:
            bias = mask[..., :keys]
        return Attention(
            q=call.q, k=call.k, v=call.v, causal=call.causal, scale=call.scale, bias=bias,
            softcap=call.softcap, sinks=call.sinks,
            offset=0 if call.causal else keys - queries, **common,
        )  # fmt: skip
    # The scores of such a call are what they are; only positions and visibility are asked here.
    shape = (*call.z.shape[:3], 1)
    return Attention(
        q=call.v.new_zeros(shape), k=call.v.new_zeros(*call.v.shape[:3], 1), v=call.v, causal=False,
        bias=call.visible(),
        offset=keys - queries, **common,
    )  # fmt: skip
