"""Output and log-sum-exp of PyTorch's own kernel, where it supports the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from interp_kernels.masks import added_tile, visible

if TYPE_CHECKING:
    from torch import Tensor

    from interp_kernels.problem import Attention

# A mask tensor has query x key entries; beyond this many the blockwise pass needs less memory.
LARGEST_MASK = 1 << 24


def plain_causal(attention: Attention) -> bool:
    """Return True if causality is the only mask, in the kernel's built-in (square) form."""
    size = attention.shape
    return (
        attention.causal
        and attention.offset == 0
        and size.query == size.key
        and not masked(attention)
    )


def masked(attention: Attention) -> bool:
    """Return True if there is any mask besides causality."""
    masks = (attention.window, attention.bias, attention.key_padding, attention.query_padding)
    masks += (attention.ranges, attention.relative_bias)
    return any(mask is not None for mask in masks)


def serves(attention: Attention) -> bool:
    """Return True if the kernel computes exactly this call: plain softmax, CPU, equal widths."""
    size = attention.shape
    heads = 1 if attention.bias is None else attention.bias.shape[1]
    if attention.relative_bias is not None:
        heads = max(heads, len(attention.relative_bias))
    mask_is_free = plain_causal(attention) or not (attention.causal or masked(attention))
    return (
        attention.q.device.type == "cpu"
        and attention.activation == "softmax"
        and attention.softcap is None
        and attention.sinks is None
        and size.d == size.d_v
        and min(size.batch, size.query, size.key) > 0
        and (mask_is_free or size.batch * heads * size.query * size.key <= LARGEST_MASK)
    )


def output_and_lse(attention: Attention) -> tuple[Tensor, Tensor]:
    """Compute PyTorch's attention: output in the inputs' dtype, log-sum-exp in float32 or 64."""
    assert serves(attention), "called for attention that the kernel does not compute"
    mask = empty = None
    causal = plain_causal(attention)
    if not causal and (attention.causal or masked(attention)):
        seen = visible(attention)
        empty = ~seen.any(-1)
        mask = torch.zeros(seen.shape, dtype=attention.work_dtype)
        added = added_tile(attention)
        if added is not None:
            mask = mask + added.to(mask.dtype)
        mask = mask.masked_fill(~seen, -torch.inf)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output, lse = kernel(
        attention.q, attention.k, attention.v, 0.0, causal, attn_mask=mask, scale=attention.scale
    )
    if empty is not None:  # the kernel returns log-sum-exp 0 for such a row
        lse = lse.masked_fill(empty, -torch.inf)
        output = output.masked_fill(empty[..., None], 0)
    return output, lse
