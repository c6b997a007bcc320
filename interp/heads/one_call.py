"""Statistics of one attention call without padding, and prompts grouped so that none is padded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.prompts import Prompts
from interp.heads.map_rows import map_statistics
from interp.model.calls.call import Call, ComputedCall, RecordedCall
from interp.model.calls.map_call import MapCall
from interp.model.hooks.kernel_call import as_attention
from interp_kernels import attention_statistics, reference
from interp_kernels.reductions import Reduction

BATCH = 8


def equal_lengths(prompts: Prompts, size: int = BATCH) -> Iterator[tuple[list[int], Prompts]]:
    """Group prompts by length into batches without padding, with the indices of the prompts."""
    by_length: dict[tuple[int, int], list[int]] = {}
    beside = prompts.ids if prompts.decoder is None else prompts.decoder.ids
    for i, (ids, read) in enumerate(zip(prompts.ids, beside, strict=True)):
        by_length.setdefault((len(ids), len(read)), []).append(i)
    for which in by_length.values():
        for start in range(0, len(which), size):
            part = which[start : start + size]
            yield part, prompts.part(part)


def reduced(call: Call, asked: Reduction, engine: str) -> Tensor:
    """Compute one reduction of a call without padding."""
    real = torch.ones(call.z.shape[0], call.z.shape[2], dtype=torch.bool, device=call.z.device)
    attention = as_attention(call, real, None)
    if isinstance(call, MapCall):
        return map_statistics(call, attention, [asked])[asked.name]
    backend = "reference" if engine == "stored" else "auto"
    if isinstance(call, RecordedCall):
        pattern = call.pattern() * call.visible()
        value: Any = reference.evaluate(asked, attention, pattern, call.scores())
    else:
        value = attention_statistics(attention, [asked], backend=backend)[asked.name]
    return value


def seen_by(call: Call) -> Tensor:
    """Count the queries that may attend to each key, `[batch, 1 or head, key]`."""
    ends = _visible_ends(call)
    if ends is None:
        return call.visible().sum(2)
    first, end = ends
    change = torch.zeros(call.v.shape[2] + 1, dtype=torch.long, device=call.z.device)
    change.index_add_(0, first, torch.ones_like(first)).index_add_(0, end, -torch.ones_like(end))
    return change.cumsum(0)[None, None, :-1]


def sees(call: Call) -> Tensor:
    """Count the keys that each query may attend to, `[batch, 1 or head, query]`."""
    ends = _visible_ends(call)
    return call.visible().sum(-1) if ends is None else (ends[1] - ends[0])[None, None]


def visible_mean(
    call: Call, x: Float[Tensor, "batch head key_pos"]
) -> Float[Tensor, "batch head query_pos"]:
    """Average a number per key over the keys that each query may attend to."""
    ends = _visible_ends(call)
    if ends is None:
        total = (call.visible().to(x.dtype) @ x[..., None])[..., 0]
    else:
        before = torch.nn.functional.pad(x.cumsum(-1), (1, 0))
        total = before[..., ends[1]] - before[..., ends[0]]
    return total / sees(call).clamp_min(1)


def _visible_ends(call: Call) -> tuple[Tensor, Tensor] | None:
    """Return the first key that each query may attend to, and the one after the last.

    None if the mask is not causality or a window, so that only the mask itself says what is seen.
    """
    if not isinstance(call, (ComputedCall, MapCall)):
        return None
    queries, keys, device = call.z.shape[2], call.v.shape[2], call.z.device
    real = torch.ones(call.z.shape[0], queries, dtype=torch.bool, device=device)
    attention = as_attention(call, real, None)
    if attention.bias is not None or attention.ranges is not None:
        return None
    query = torch.arange(queries, device=device) + attention.offset
    end = (query + 1).clamp(0, keys) if attention.causal else torch.full_like(query, keys)
    first = torch.zeros_like(query)
    if attention.window is not None:
        first = (query + 1 - attention.window).clamp_min(0)
    return torch.minimum(first, end), end
