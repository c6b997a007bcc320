"""The output and log-sum-exp of the kernel PyTorch ships, where it serves the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from interp_kernels.masks import bias_tile, visible

if TYPE_CHECKING:
    from torch import Tensor

    from interp_kernels.problem import Attention

# A mask as numbers costs query x key entries; beyond this many the blockwise pass is kinder.
LARGEST_MASK = 1 << 24


def plain_causal(attention: Attention) -> bool:
    """Whether causality is the only mask, in the form the kernel has built in (square)."""
    size = attention.shape
    return (
        attention.causal
        and attention.offset == 0
        and size.query == size.key
        and not masked(attention)
    )


def masked(attention: Attention) -> bool:
    """Whether there is any mask beside causality."""
    masks = (attention.window, attention.bias, attention.key_padding, attention.query_padding)
    return any(mask is not None for mask in masks)


def serves(attention: Attention) -> bool:
    """Whether the kernel computes exactly this call: a plain softmax, on a CPU, of equal widths."""
    size = attention.shape
    heads = 1 if attention.bias is None else attention.bias.shape[1]
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
    """PyTorch's own attention: output in the inputs' dtype, log-sum-exp in float32 or float64."""
    assert serves(attention), "asked for a call the kernel does not compute"
    mask = empty = None
    causal = plain_causal(attention)
    if not causal and (attention.causal or masked(attention)):
        seen = visible(attention)
        empty = ~seen.any(-1)
        mask = torch.zeros(seen.shape, dtype=attention.work_dtype)
        if attention.bias is not None and attention.bias.dtype != torch.bool:
            mask = mask + bias_tile(attention).to(mask.dtype)
        mask = mask.masked_fill(~seen, -torch.inf)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output, lse = kernel(
        attention.q, attention.k, attention.v, 0.0, causal, attn_mask=mask, scale=attention.scale
    )
    if empty is not None:  # the kernel's own answer for such a row is log-sum-exp 0
        lse = lse.masked_fill(empty, -torch.inf)
        output = output.masked_fill(empty[..., None], 0)
    return output, lse
