"""Attention times the norm of the values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.attribution.graph.mixing import stored_layers, target_rows
from interp.attribution.graph.streamed_patterns import NOTES, from_target, is_streamed, streamed
from interp.core.errors import OptionError
from interp.model.calls.call import repeat_kv
from interp_kernels.reductions import Received, ReceivedValueWeighted

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp_kernels.reductions import Reduction


@attribution(unit="attention x value norm", signed=False, needs="patterns")
def value_weighted(
    example: Example, *, norm: int = 1, received: bool = False, stack: str = ""
) -> Scores:
    """Average attention times the norm of the value vector over layers and heads.

    A sink that receives much attention but has a value near zero therefore scores low. In
    grouped-query models a head reads the value of its group. Above 256 MiB of patterns they are
    computed in blocks and never stored.

    Not for: explaining a target, or signs; it is a rule for pruning a cache.

    Args:
        example: the input and its target.
        norm: 1 for the sum of absolute values, as published; 2 for the Euclidean norm.
        received: True to sum the attention of all queries, as in pruning a cache, instead of using
            the target's output position.
        stack: name of the stack, if the model has several.

    Reference: Guo, Kamigaito and Watanabe 2024, "Attention Score is not All You Need for Token
    Importance Indicator in KV Cache Reduction: Value Also Matters" (VATP).
    """
    if norm not in (1, 2):
        raise OptionError(f"unknown norm={norm!r}; known: 1, 2")
    if is_streamed(example, stack):
        return _streamed(example, norm, received, stack)
    sites, patterns = stored_layers(example, stack)
    values = example.capture(("v",), stack=sites[0].stack)
    rows = torch.from_numpy(target_rows(example, sites[0].stack))
    weights = torch.ones_like(rows) if received else rows
    by_layer = []
    for site, pattern in zip(sites, patterns, strict=True):
        size = values["v", site.layer, site.stack][0].double().norm(p=norm, dim=-1)
        size = size.repeat_interleave(site.n_heads // site.n_kv_heads, 0)
        attended = weights.to(size) @ pattern.double()
        by_layer.append((attended * size).mean(0))
    return Scores(torch.stack(by_layer).mean(0).cpu().numpy())


def _streamed(example: Example, norm: int, received: bool, stack: str) -> Scores:
    """Compute the same without storing a pattern."""
    asked, read = from_target(example, stack)
    if received:
        one: Reduction = ReceivedValueWeighted() if norm == 2 else Received()
        asked, read = (
            lambda device: [one],
            lambda site, call, values: values[one.name][0].double().cpu(),
        )

    def weighted(site: Site, call: Call, values: Mapping[str, Any]) -> torch.Tensor:
        attended = read(site, call, values)
        if received and norm == 2:  # its weights are in the reduction
            return attended.mean(0)
        size = repeat_kv(call.v.double().norm(p=norm, dim=-1), site.n_heads)[0].cpu()
        return (attended * size).mean(0)

    by_layer = streamed(example, stack, asked, weighted)
    return Scores(torch.stack(by_layer).mean(0).numpy(), notes=dict(NOTES))
