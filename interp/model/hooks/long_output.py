"""Head outputs of long prompts from queries, keys and values, without storing a pattern.

The kernels compute them block by block, and their backward pass recomputes the weights in the same
way, so that memory is linear in the length of the prompt, with gradients as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from interp.core.errors import UnreadableAttention
from interp.model.calls.call import ComputedCall, precise
from interp.model.hooks.kernel_call import to_attention

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.model.calls.call import Call

STORED_BYTES = 2**26  # patterns of one layer up to this size are stored


def is_long(call: Call) -> bool:
    """Return True if the float32 patterns of a call exceed 64 MiB and need not be stored.

    Calls of a family's own attention code hold their pattern already.
    """
    batch, heads, queries, _ = call.z.shape
    return (
        isinstance(call, ComputedCall)
        and 4 * batch * heads * queries * call.v.shape[2] > STORED_BYTES
    )


def long_output(
    call: ComputedCall, q: Tensor, k: Tensor, v: Tensor
) -> Float[Tensor, "batch head query_pos d_v"]:
    """Compute the head outputs (z) that other queries, keys and values give in a call.

    The mask, the biases, the soft-cap and the sinks of the call are kept. Gradients reach `q`, `k`
    and `v`.
    """
    from interp_kernels.backward import attention_with_output
    from interp_kernels.errors import KernelError

    exact = replace(call, q=precise(q), k=precise(k), v=precise(v))
    # the mask itself says what padding hides
    real = torch.ones(exact.z.shape[0], exact.z.shape[2], dtype=torch.bool, device=q.device)
    try:
        return attention_with_output(to_attention(exact, real, None)).to(call.z.dtype)
    except KernelError as error:
        raise UnreadableAttention(
            f"the head outputs of a prompt of {exact.z.shape[2]:,} tokens cannot be computed in "
            f"blocks: {error}"
        ) from error


def uniform_output(call: Call) -> Float[Tensor, "batch head query_pos d_v"]:
    """Compute the head outputs (z) of uniform attention over the keys that each query may see."""
    if is_long(call):
        assert isinstance(call, ComputedCall)
        return _long_uniform(call)
    seen = call.visible().to(call.z.dtype).expand(-1, call.n_heads, -1, -1)
    return call.mix(seen / seen.sum(-1, keepdim=True).clamp_min(1)).to(call.z.dtype)


def _long_uniform(call: ComputedCall) -> Tensor:
    mask = call.mask
    if mask is not None and mask.dtype != torch.bool:
        mask = mask > torch.finfo(mask.dtype).min / 2
    unlike = replace(call, bias=None, mask=mask, softcap=None, sinks=None)
    return long_output(unlike, torch.zeros_like(call.q), torch.zeros_like(call.k), call.v)
