"""Queries, keys and values of every head in one attention call, and the output of patched ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from interp.attribution.roles import close
from interp.core.errors import UnreadableAttention
from interp.model.calls.call import ComputedCall, RecordedCall, precise, repeat_kv
from interp.model.hooks.long_output import is_long, long_output
from interp.model.locate.find_layout import layouts

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model


@dataclass(frozen=True, eq=False)
class AttentionTensors:
    """Queries, keys and values per query head; shared keys and values are repeated."""

    q: Float[Tensor, "batch head query_pos d_head"]
    k: Float[Tensor, "batch head key_pos d_head"]
    v: Float[Tensor, "batch head key_pos d_v"]


def attention_tensors(call: Call, site: Site) -> AttentionTensors:
    """Return the queries, keys and values of an attention call."""
    if call.q is None or call.k is None:
        raise UnreadableAttention(
            f"{site.name} ({site.module}): its scores are a sum of several products, so no single "
            "query and key can be patched; patch heads instead of their inputs"
        )
    heads = call.n_heads
    return AttentionTensors(call.q, repeat_kv(call.k, heads), repeat_kv(call.v, heads))


def scores_of(
    model: Model, site: Site, call: Call, parts: AttentionTensors, scale: float | None = None
) -> Float[Tensor, "batch head query_pos key_pos"]:
    """Return the scores that other queries and keys give in this call.

    The mask and the biases of the call are kept. The scale is located in the model if it is not
    given.
    """
    if isinstance(call, ComputedCall):
        return replace(call, q=parts.q, k=parts.k, v=parts.v).scores()
    assert isinstance(call, RecordedCall)
    scale = layouts(model).sites[site].scale if scale is None else scale
    if scale is None:
        raise UnreadableAttention(
            f"{site.name} ({site.module}): its scores are not a multiple of q·k plus a constant"
        )
    actual = attention_tensors(call, site)
    product = precise(parts.q) @ precise(parts.k).transpose(-1, -2)
    before = precise(actual.q) @ precise(actual.k).transpose(-1, -2)
    return call.scores().detach() + scale * (product - before.detach())


def set_parts(
    model: Model, site: Site, call: Call, parts: AttentionTensors, scale: float | None = None
) -> None:
    """Replace the head outputs (z) of a call by those that other queries, keys and values give."""
    if is_long(call):
        assert isinstance(call, ComputedCall)
        call.z = long_output(call, parts.q, parts.k, parts.v)
        return
    scores = scores_of(model, site, call, parts, scale)
    call.z = mixed_parts(call, probabilities(call, scores), parts.v)


def probabilities(call: Call, scores: Tensor) -> Tensor:
    """Return the attention pattern that scores give in this call, with its attention sinks."""
    import torch

    sinks = getattr(call, "sinks", None)
    if sinks is None:
        return scores.softmax(-1)
    sink = precise(sinks).reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat([scores, sink], -1).softmax(-1)[..., :-1]


def mixed_parts(
    call: Call, pattern: Float[Tensor, "batch head query_pos key_pos"], v: Tensor
) -> Float[Tensor, "batch head query_pos d_v"]:
    """Return the head outputs (z) of an attention pattern and the values of every query head."""
    return (pattern @ precise(v)).to(call.z.dtype)


def check_computed(call: Call, site: Site, z: Tensor) -> float:
    """Return the distance between recomputed head outputs (z) and the model's own."""
    return close(z, call.z, f"{site.name}: the recomputed attention differs from the model's own")
