"""Read the range of keys of each query from the mask functions of transformers, in O(tokens).

transformers composes a mask from functions of indices: causal, a window, chunks, padding, packed
documents. Each of them leaves a query one range of keys; an intersection of ranges is one, and a
union is where they touch. Functions of any other origin are not read.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import getclosurevars
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

MODULE = "transformers.masking_utils"


class Ranges(NamedTuple):
    """First key and one past the last that each query sees; both are positions."""

    first: Int[Tensor, "#batch query_pos"]
    end: Int[Tensor, "#batch query_pos"]


def ranges_of(
    function: Callable[..., Any], query: Int[Tensor, "batch query_pos"], keys: int
) -> Ranges | None:
    """Return the range of keys of each query, or None if a part of the function is not known."""
    if getattr(function, "__module__", None) != MODULE:
        return None
    read = _READ.get(function.__qualname__.split(".")[0])
    return None if read is None else read(getclosurevars(function).nonlocals, query, keys)


def _all(_: Any, query: Tensor, keys: int) -> Ranges:
    return Ranges(torch.zeros_like(query), torch.full_like(query, keys))


def _causal(_: Any, query: Tensor, keys: int) -> Ranges:
    return Ranges(torch.zeros_like(query), query + 1)


def _window(given: Any, query: Tensor, keys: int) -> Ranges:
    return Ranges(query - given["sliding_window"] + 1, torch.full_like(query, keys))


def _window_on_both_sides(given: Any, query: Tensor, keys: int) -> Ranges:
    return Ranges(query - given["sliding_window"], query + given["sliding_window"] + 1)


def _chunks(given: Any, query: Tensor, keys: int) -> Ranges:
    size, before = given["chunk_size"], given["left_padding"].to(query.device).reshape(-1, 1)
    first = torch.div(query - before, size, rounding_mode="floor") * size + before
    return Ranges(first, first + size)


def _padding(given: Any, query: Tensor, keys: int) -> Ranges | None:
    real = given["padding_mask"].bool()
    return _runs(real.long(), torch.ones_like(query), at_once=True)


def _packed(given: Any, query: Tensor, keys: int) -> Ranges | None:
    labels = given["packed_sequence_mask"]
    return _runs(labels, labels.expand(len(query), -1).gather(1, query))


def _blocks(given: Any, query: Tensor, keys: int) -> Ranges | None:
    """Read tokens that see the whole of their own block; those outside of blocks see nothing."""
    labels = given["block_sequence_ids"]
    block = labels.expand(len(query), -1).gather(1, query.clamp(max=labels.shape[1] - 1))
    runs = _runs(labels, block)
    if runs is None:
        return None
    return Ranges(runs.first, torch.where(block < 0, runs.first, runs.end))


def _runs(labels: Tensor, wanted: Tensor, *, at_once: bool = False) -> Ranges | None:
    """Return the run of keys with each query's label; None if a label has several runs."""
    first, end = torch.zeros_like(wanted), torch.zeros_like(wanted)
    for row in range(len(wanted)):
        given = labels[row if len(labels) > 1 else 0]
        values, counts = given.unique_consecutive(return_counts=True)
        ends = counts.cumsum(0)
        kept = values == 1 if at_once else values >= 0
        values, starts, ends = values[kept], (ends - counts)[kept], ends[kept]
        if len(values.unique()) < len(values):
            return None
        if not len(values):
            continue
        order = values.argsort()
        at = torch.searchsorted(values[order].contiguous(), wanted[row].contiguous())
        at = order[at.clamp(max=len(values) - 1)]
        known = values[at] == wanted[row]
        first[row] = torch.where(known, starts[at], 0)
        end[row] = torch.where(known, ends[at], 0)
    return Ranges(first, end)


def _and(given: Any, query: Tensor, keys: int) -> Ranges | None:
    parts = list(given["mask_functions"])
    # positions within documents count only where other documents are hidden
    packed = any(_called(part) == "packed_sequence_mask_function" for part in parts)
    ranges = _all(None, query, keys)
    for part in parts:
        if _called(part) == "remap_positions_for_packed_sequence" and packed:
            inner = getclosurevars(part).nonlocals
            positions = inner["position_ids"].expand(len(query), -1).gather(1, query)
            of = ranges_of(inner["mask_function"], positions, keys)
            of = of and Ranges(of.first + query - positions, of.end + query - positions)
        else:
            of = ranges_of(part, query, keys)
        if of is None:
            return None
        ranges = Ranges(torch.maximum(ranges.first, of.first), torch.minimum(ranges.end, of.end))
    return ranges


def _or(given: Any, query: Tensor, keys: int) -> Ranges | None:
    ranges = Ranges(torch.zeros_like(query), torch.zeros_like(query))
    for part in given["mask_functions"]:
        of = ranges_of(part, query, keys)
        if of is None:
            return None
        first = of.first.clamp(0, keys)
        of = Ranges(first, torch.maximum(of.end.clamp(0, keys), first))
        none, no_more = ranges.first >= ranges.end, of.first >= of.end
        apart = (torch.maximum(ranges.first, of.first) > torch.minimum(ranges.end, of.end)) & ~(
            none | no_more
        )
        if bool(apart.any()):
            return None
        low = torch.where(none, of.first, torch.minimum(ranges.first, of.first))
        high = torch.where(none, of.end, torch.maximum(ranges.end, of.end))
        ranges = Ranges(
            torch.where(no_more, ranges.first, low), torch.where(no_more, ranges.end, high)
        )
    return ranges


def _called(function: Callable[..., Any]) -> str:
    of_transformers = getattr(function, "__module__", None) == MODULE
    return function.__qualname__.split(".")[0] if of_transformers else ""


_READ: dict[str, Callable[[Any, Tensor, int], Ranges | None]] = {
    "causal_mask_function": _causal,
    "bidirectional_mask_function": _all,
    "sliding_window_overlay": _window,
    "sliding_window_bidirectional_overlay": _window_on_both_sides,
    "chunked_overlay": _chunks,
    "padding_mask_function": _padding,
    "packed_sequence_mask_function": _packed,
    "blockwise_overlay": _blocks,
    "and_masks": _and,
    "or_masks": _or,
}
