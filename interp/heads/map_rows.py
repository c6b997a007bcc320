"""Statistics of maps that are not one softmax, in blocks of rows: no map is held whole.

They are those of `interp_kernels.reference`, of the absolute share |M| / sum |M| of each row.
Outputs and their norms are those of the map itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from interp.core.errors import UnreadableAttention
from interp.model.calls.map_call import MapCall
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
)

SHARE = "of absolute shares |M| / sum |M| of each row"

_PER_QUERY = (Diagonal, Distance, Entropy, KeySetMass, Largest, Mass, SegmentMass, TopK)


def map_statistics(
    call: MapCall, attention: Attention, asked: Sequence[Reduction]
) -> dict[str, Any]:
    """Compute reductions of a map, by their names."""
    results: dict[str, Any] = {}
    rest: list[Reduction] = []
    for each in asked:
        if isinstance(each, Output):
            results[each.name] = call.z
        elif isinstance(each, ResultNorm):
            results[each.name] = reference.result_norm(call.z, each.w_o)
        elif isinstance(each, (*_PER_QUERY, Targets, Received, ReceivedValueWeighted)):
            rest.append(each)
        else:
            raise UnreadableAttention(
                f"{type(each).__name__} is not defined for a {call.kind} map; use a detector, "
                "entropy, largest weight or distance, or capture 'map'"
            )
    held: dict[str, Any] = {}
    size, queries = call.rows_at_once, call.z.shape[2]
    for first in range(0, queries if rest else 0, size):
        rows = slice(first, min(first + size, queries))
        block = _block(call, attention, rows)
        share = call.pattern(rows) * visible(block)
        for each in rest:
            received = isinstance(each, ReceivedValueWeighted)
            value = reference.evaluate(Received() if received else each, block, share, share)
            held[each.name] = _put(each, held.get(each.name), value, rows, queries)
    for each in rest:
        value = held[each.name]
        if isinstance(each, ReceivedValueWeighted):
            value = reference.received_value_weighted(value, attention.v)
        results[each.name] = value
    return results


def _put(asked: Reduction, held: Any, value: Any, rows: slice, queries: int) -> Any:
    """Add the values of some rows to those of all rows.

    The whole result is allocated with the first block. Small results that are allocated between
    blocks would lie in the gaps that freed blocks leave, so that no later block fits into them, and
    the memory of the process would grow with the number of blocks.
    """
    if isinstance(asked, (Received, ReceivedValueWeighted)):
        return value.clone() if held is None else held.add_(value)
    if isinstance(value, Chosen):
        weight, key = (getattr(held, name, None) for name in ("weight", "key"))
        return Chosen(
            _filled(weight, value.weight, rows, queries), _filled(key, value.key, rows, queries)
        )
    return _filled(held, value, rows, queries)


def _filled(whole: Tensor | None, part: Tensor, rows: slice, queries: int) -> Tensor:
    if whole is None:
        whole = part.new_empty(*part.shape[:2], queries, *part.shape[3:])
    whole[:, :, rows] = part
    return whole


def _block(call: MapCall, attention: Attention, rows: slice) -> Attention:
    """Return some rows of an attention, with their mask as it is."""
    padding = attention.query_padding
    return Attention(
        q=attention.q[:, :, rows],
        k=attention.k,
        v=attention.v,
        causal=False,
        bias=call.visible(rows),
        offset=attention.offset + rows.start,
        key_padding=attention.key_padding,
        tokens=attention.tokens,
        start=attention.start,
        segments=attention.segments,
        query_padding=None if padding is None else padding[:, rows],
    )
