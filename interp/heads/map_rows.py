"""Statistics of maps that are not one softmax, in blocks of rows: no map is held whole.

They are those of `interp_kernels.reference`, of the absolute share |M| / sum |M| of each row.
Outputs and their norms are those of the map itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from interp.core.errors import UnreadableAttention
from interp.model.mixers.map_call import MapCall
from interp_kernels import reference
from interp_kernels.masks import visible
from interp_kernels.problem import Attention
from interp_kernels.reductions import (
    Chosen,
    Diagonal,
    Distance,
    Entropy,
    KeySetMass,
    Largest,
    Mass,
    Output,
    Received,
    ReceivedValueWeighted,
    Reduction,
    ResultNorm,
    SegmentMass,
    Targets,
    TopK,
)  # fmt: skip

SHARE = "of absolute shares |M| / sum |M| of each row"

_PER_QUERY = (Diagonal, Distance, Entropy, KeySetMass, Largest, Mass, SegmentMass, TopK)


def map_statistics(
    call: MapCall, attention: Attention, asked: Sequence[Reduction]
) -> dict[str, Any]:
    """Compute reductions of a map, by their names.

    Raises:
        UnreadableAttention: a reduction needs scores of a softmax, or the whole map at once.
    """
    found: dict[str, Any] = {}
    rest: list[Reduction] = []
    for each in asked:
        if isinstance(each, Output):
            found[each.name] = call.z
        elif isinstance(each, ResultNorm):
            found[each.name] = reference.result_norm(call.z, each.w_o)
        elif isinstance(each, (*_PER_QUERY, Targets, Received, ReceivedValueWeighted)):
            rest.append(each)
        else:
            raise UnreadableAttention(
                f"{type(each).__name__} is not defined for a {call.kind} map; use a detector, "
                "entropy, largest weight or distance, or capture 'map'"
            )
    parts: dict[str, list[Any]] = {each.name: [] for each in rest}
    size, queries = call.rows_at_once, call.z.shape[2]
    for first in range(0, queries if rest else 0, size):
        rows = slice(first, min(first + size, queries))
        block = _block(call, attention, rows)
        share = call.pattern(rows) * visible(block)
        for each in rest:
            received = isinstance(each, ReceivedValueWeighted)
            value = reference.evaluate(Received() if received else each, block, share, share)
            # a diagonal is a view, which would keep its block of the map
            parts[each.name].append(value.clone() if isinstance(value, Tensor) else value)
    for each in rest:
        found[each.name] = _joined(each, parts[each.name], attention)
    return found


def _block(call: MapCall, attention: Attention, rows: slice) -> Attention:
    """Return some rows of an attention, with their mask as it is."""
    padding = attention.query_padding
    return Attention(
        q=attention.q[:, :, rows], k=attention.k, v=attention.v, causal=False,
        bias=call.visible(rows), offset=attention.offset + rows.start,
        key_padding=attention.key_padding, tokens=attention.tokens, start=attention.start,
        query_padding=None if padding is None else padding[:, rows],
    )  # fmt: skip


def _joined(asked: Reduction, parts: Sequence[Any], attention: Attention) -> Any:
    if isinstance(asked, (Received, ReceivedValueWeighted)):
        total = torch.stack(list(parts)).sum(0)
        weighted = isinstance(asked, ReceivedValueWeighted)
        return reference.received_value_weighted(total, attention.v) if weighted else total
    if isinstance(parts[0], Chosen):
        weights, keys = ([getattr(p, name) for p in parts] for name in ("weight", "key"))
        return Chosen(torch.cat(weights, 2), torch.cat(keys, 2))
    tensors: list[Tensor] = list(parts)
    return torch.cat(tensors, 2)
