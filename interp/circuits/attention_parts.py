"""Queries, keys and values of every head of one attention call, and the z that others give."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from interp.attribution.roles import close
from interp.core.errors import UnreadableAttention
from interp.model.hooks.calls import ComputedCall, RecordedCall, precise, repeat_kv
from interp.model.locate.find_layout import layouts

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.model.hooks.calls import Call
    from interp.model.locate.sites import Site
    from interp.model.model import Model


@dataclass(frozen=True, eq=False)
class AttentionTensors:
    """Queries, keys and values; keys and values that heads share are repeated for each."""

    q: Float[Tensor, "batch head query_pos d_head"]
    k: Float[Tensor, "batch head key_pos d_head"]
    v: Float[Tensor, "batch head key_pos d_v"]


def attention_tensors(call: Call, site: Site) -> AttentionTensors:
    """The queries, keys and values of a call.

    Raises:
        UnreadableAttention: its scores are a sum of several products.
    """
    if call.q is None or call.k is None:
        raise UnreadableAttention(
            f"{site.name} ({site.module}): its scores are a sum of several products, so no single "
            "query and key can be patched; patch heads, not their inputs"
        )
    heads = call.n_heads
    return AttentionTensors(call.q, repeat_kv(call.k, heads), repeat_kv(call.v, heads))


def scores_of(
    model: Model, site: Site, call: Call, parts: AttentionTensors
) -> Float[Tensor, "batch head query_pos key_pos"]:
    """The scores that other queries and keys give in this call, mask and biases as they are.

    Raises:
        UnreadableAttention: the scores of code of a model's own are not `scale * q·k + constant`.
    """
    if isinstance(call, ComputedCall):
        return replace(call, q=parts.q, k=parts.k, v=parts.v).scores()
    assert isinstance(call, RecordedCall)
    scale = layouts(model).sites[site].scale
    if scale is None:
        raise UnreadableAttention(
            f"{site.name} ({site.module}): its scores are no multiple of q·k plus a constant"
        )
    own = attention_tensors(call, site)
    product = precise(parts.q) @ precise(parts.k).transpose(-1, -2)
    before = precise(own.q) @ precise(own.k).transpose(-1, -2)
    return call.scores().detach() + scale * (product - before.detach())


def set_parts(model: Model, site: Site, call: Call, parts: AttentionTensors) -> None:
    """Let a call go on with the z that other queries, keys and values give."""
    call.z = mixed_parts(call, probabilities(call, scores_of(model, site, call, parts)), parts.v)


def probabilities(call: Call, scores: Tensor) -> Tensor:
    """The pattern that scores give in this call, its sinks included."""
    import torch

    sinks = getattr(call, "sinks", None)
    if sinks is None:
        return scores.softmax(-1)
    sink = precise(sinks).reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat([scores, sink], -1).softmax(-1)[..., :-1]


def mixed_parts(
    call: Call, pattern: Float[Tensor, "batch head query_pos key_pos"], v: Tensor
) -> Float[Tensor, "batch head query_pos d_v"]:
    """The z of a pattern and of every query head's own values."""
    return (pattern @ precise(v)).to(call.z.dtype)


def check_computed(call: Call, site: Site, z: Tensor) -> float:
    """How far z computed again lies from the model's own.

    Raises:
        UnreadableAttention: by more than rounding.
    """
    return close(z, call.z, f"{site.name}: attention computed again is not the model's own")
