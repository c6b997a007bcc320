"""Queries and keys of a few heads over a long prompt, from which a page computes every weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from interp.core.head import Head
from interp.heads.patterns.stack import Stack, ZoomTerms
from interp.model.hooks.kernel_call import to_attention
from interp_kernels import attention_statistics
from interp_kernels.pooled_tile import pooled_tile
from interp_kernels.reductions import LogSumExp

if TYPE_CHECKING:
    from torch import Tensor

    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model
    from interp_kernels.problem import Attention

MOST_HEADS = 4
"""Heads whose queries and keys are kept, since each takes time that grows with the square."""


class _Enough(Exception):
    """Signal that ends a forward pass."""


def with_zooms(
    model: Model, inputs: Mapping[str, Tensor], stacks: Sequence[Stack], named: Sequence[Head]
) -> tuple[Stack, ...]:
    """Return stacks with the terms of the named heads, or of the head with the strongest link.

    The terms come from another forward pass. A head is left out whose weights do not follow from a
    query and a key alone: one with a bias per position, with visible keys of its own, or without a
    softmax.
    """
    known = [(stack, head) for stack in stacks for head in stack.weights]

    def strength(place: tuple[Stack, Head]) -> float:
        stack, head = place
        return max((link.weight for link in stack.links.get(head, ())), default=0.0)

    asked = [place for place in known if place[1] in named][:MOST_HEADS]
    asked = asked or [max(known, key=strength)]
    terms: dict[tuple[str, Head], ZoomTerms] = {}
    left = {(stack.name, head.layer) for stack, head in asked}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if (site.stack, site.layer) not in left:
            return
        attention = to_attention(call, real, None)
        if follows(attention):
            lse: Any = attention_statistics(attention, [LogSumExp()], backend="auto")["lse"]
            for stack, head in asked:
                if (stack.name, head.layer) == (site.stack, site.layer):
                    terms[stack.name, head] = _terms(attention, lse, head.head, stack.block)
        left.discard((site.stack, site.layer))
        if not left:
            raise _Enough

    with suppress(_Enough):
        model.read(inputs, visit, last=1, streamed=True)
    return tuple(
        replace(stack, zooms={head: x for (name, head), x in terms.items() if name == stack.name})
        for stack in stacks
    )


def follows(attention: Attention) -> bool:
    """Return True if a query and a key alone give the score of a call."""
    added = (attention.bias, attention.relative_bias, attention.ranges)
    padding = [x for x in (attention.key_padding, attention.query_padding) if x is not None]
    whole = all(bool(x.all()) for x in padding)
    return all(x is None for x in added) and whole and attention.activation == "softmax"


def _terms(attention: Attention, lse: Tensor, head: int, block: int) -> ZoomTerms:
    size = attention.shape
    every = range(size.query), range(size.key)
    peaks = pooled_tile(attention, lse, head, *every, block, largest=True)

    def numbers(x: Tensor) -> Any:
        return x.detach().float().cpu().numpy()

    return ZoomTerms(
        numbers(attention.q[0, head]),
        numbers(attention.k[0, head // size.group]),
        numbers(lse[0, head]),
        float(attention.scale),
        attention.softcap,
        attention.causal,
        attention.window,
        attention.offset,
        numbers(peaks),
    )
