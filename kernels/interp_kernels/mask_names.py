"""Name the structure of the mask and bias of an attention call, as provenance reports it."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from interp_kernels.bias_rows import BiasRows
from interp_kernels.mask_structure import MaskStructure, named_ranges
from interp_kernels.problem import Attention

_STRAIGHT = 1e-4  # relative to the largest slope: less is rounding


def mask_name(attention: Attention, real: Bool[Tensor, "batch query_pos"]) -> str:
    """Return what the kernels know of the mask and bias of a call.

    Such as "causal", "causal, window of 256", "chunks of 64", "packed documents", "causal, ALiBi"
    or "causal, padding". A bias that no structure describes is named as such.

    Args:
        attention: the call.
        real: the queries that are no padding.
    """
    if attention.ranges is not None:
        offset = attention.k.shape[2] - attention.q.shape[2]
        parts = [named_ranges(attention.ranges, real, offset)]
    else:
        parts = [str(MaskStructure(attention.causal, attention.window))]
    if (relative := attention.relative_bias) is not None and bool(relative.any()):
        parts.append("ALiBi" if _straight(relative) else "relative bias")
    if isinstance(bias := attention.bias, BiasRows):
        parts.append("mask or bias in rows")
    elif bias is not None and bias.shape[2] == 1:
        longest = int(real.sum(1).argmax()) % bias.shape[0]
        keys = real[longest] if real.shape[1] == bias.shape[3] else slice(None)
        parts.append("ALiBi" if _straight(bias[longest, :, 0, keys]) else "bias by key")
    elif bias is not None:
        parts.append("bias by query and key")
    if not bool(real.all()):
        parts.append("padding")
    return ", ".join(parts)


def _straight(bias: Float[Tensor, "head place"]) -> bool:
    """Return whether the bias of every head is linear in the position."""
    slope = bias.double().diff(dim=-1)
    if slope.shape[-1] < 2:
        return False
    most = slope.abs().amax()
    return bool(most > 0) and bool((slope.diff(dim=-1).abs() <= _STRAIGHT * most).all())
