"""Recognise what the mask of an attention call is: for each query, one range of keys.

A model hands its kernel a mask of queries by keys. Nearly always each query sees one run of keys
beside padding: causal attention, a sliding window, chunks, a prefix, packed documents. The kernels
know causality and windows as two numbers and the others as ranges: they skip the tiles that nobody
sees, and need no matrix. Every entry of a mask is compared with its ranges, once per forward pass,
and where one entry differs it stays the mask that it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from interp_kernels.errors import InvalidAttention

ENTRIES = 1 << 22  # compared at a time: 4 MiB per intermediate result


@dataclass(frozen=True)
class MaskStructure:
    """A mask as a function of positions; padding is known beside it.

    Args:
        causal: a query sees no key after itself.
        window: how many keys back a query sees, itself included; None for no limit.
        kind: what the ranges are, in words; "" without ranges.
        ranges: first key and one past the last that each query sees, `[#batch, query_pos, 2]`.
    """

    causal: bool
    window: int | None = None
    kind: str = ""
    ranges: Tensor | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        if self.kind:
            return self.kind
        if not self.causal:
            return "every key"
        return "causal" if self.window is None else f"causal, window of {self.window}"


@dataclass(frozen=True, eq=False)
class _Recognised:
    version: int
    real: Tensor
    found: Any


# One mask serves all layers of a forward pass that share it, and is dropped with that pass.
_recognised: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def structure_of(
    mask: Bool[Tensor, "#batch #head query_pos more"]
    | Float[Tensor, "#batch #head query_pos more"],
    real: Bool[Tensor, "batch query_pos"],
    keys: int,
) -> MaskStructure | None:
    """Return the structure that equals a mask in every entry of a real query, or None.

    Args:
        mask: True where a key is seen, or numbers that are added to scores.
        real: the query positions that are not padding; also those of keys, where there are as many.
        keys: the number of keys; a mask for a cache of fixed size has more.
    """
    if mask.is_inference():  # does not count its changes
        return _recognise(mask[..., :keys], real)
    known = _recognised.get(mask)
    if known is not None and known.version == mask._version and torch.equal(known.real, real):
        return known.found
    found = _recognise(mask[..., :keys], real)
    _recognised[mask] = _Recognised(mask._version, real, found)
    return found


def _recognise(mask: Tensor, real: Tensor) -> MaskStructure | None:
    mask = without_expanded(mask)
    batch, heads, queries, keys = mask.shape
    if heads != 1 or batch not in (1, len(real)) or not (queries and keys and bool(real.any())):
        return None
    padded = not bool(real.all())
    if padded and (queries != keys or batch != len(real)):
        return None  # no list of padded keys is known, or the mask hides none of them
    parts = []
    for part in _parts(queries, batch * keys):
        found = ranges_of_rows(mask[:, 0, part], real[:, part], real if padded else None)
        if found is None:
            return None
        parts.append(found)
    return named(torch.cat(parts, 1), real, keys)


def _parts(queries: int, entries: int) -> Iterator[slice]:
    rows = max(1, ENTRIES // max(1, entries))
    for first in range(0, queries, rows):
        yield slice(first, min(first + rows, queries))


def without_expanded(mask: Tensor) -> Tensor:
    """Return one entry of the batch and head axes that only repeat another."""
    for axis in (0, 1):
        if mask.shape[axis] > 1 and mask.stride(axis) == 0:
            mask = mask.narrow(axis, 0, 1)
    return mask


def shown(mask: Tensor) -> Tensor:
    """Return True where a mask of bools or numbers shows a key."""
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def ranges_of_rows(
    mask: Bool[Tensor, "batch rows key_pos"] | Float[Tensor, "batch rows key_pos"],
    rows: Bool[Tensor, "prompts rows"],
    real: Bool[Tensor, "batch key_pos"] | None,
) -> Int[Tensor, "batch rows 2"] | None:
    """Return the range of each row; None if a real row sees padding, or not all between two keys.

    None as well if a number that is added to a visible key is not 0.

    Args:
        mask: rows of the mask.
        rows: the rows that are not padding.
        real: the keys that are not padding, if any is.
    """
    seen = shown(mask)
    if mask.dtype != torch.bool and bool((mask.masked_fill(~seen, 0) != 0).any()):
        return None
    keys = seen.shape[-1]
    some = seen.view(torch.uint8) if seen.is_contiguous() else seen.to(torch.uint8)
    number = seen.sum(-1)
    first = some.argmax(-1)
    last = keys - some.flip(-1).argmax(-1)
    ranges = torch.stack([first, last], -1) * (number > 0)[..., None]
    first, last = ranges.unbind(-1)
    between = last - first
    if real is not None:
        if bool(((seen & ~real[:, None]).any(-1) & rows).any()):
            return None
        before = torch.nn.functional.pad(real.cumsum(-1), (1, 0))
        between = before.gather(1, last) - before.gather(1, first)
    holes = number != between
    asked = rows if len(rows) == len(holes) else rows.any(0, keepdim=True)
    return None if bool((holes & asked).any()) else ranges


def named(
    ranges: Int[Tensor, "#batch query_pos 2"], real: Bool[Tensor, "batch query_pos"], keys: int
) -> MaskStructure:
    """Return the simplest structure with these ranges at the real queries.

    Args:
        ranges: first key and one past the last that each query sees.
        real: the query positions that are not padding.
        keys: the number of keys.

    Raises:
        InvalidAttention: a token sees no key.
    """
    nothing = ((ranges[..., 0] >= ranges[..., 1]) & real).nonzero()
    if len(nothing):
        prompt, token = nothing[0].tolist()
        raise InvalidAttention(
            f"the mask hides every key from token {token} of prompt {prompt} ({len(nothing)} such "
            "tokens), so its attention is not defined; let it see itself, or mark it as padding"
        )
    batch, queries = real.shape
    offset = keys - queries
    place = torch.arange(queries, device=ranges.device) + offset
    # Keys before the first real one, or after the last, are padding and listed as such.
    low, high = torch.zeros(batch, 1).to(place), torch.full((batch, 1), keys).to(place)
    if queries == keys:
        low = real.to(torch.uint8).argmax(-1, keepdim=True)
        high = keys - real.flip(-1).to(torch.uint8).argmax(-1, keepdim=True)
    first, end = (x.expand(batch, -1) for x in ranges.unbind(-1))

    def equal(want_first: Tensor, want_end: Tensor) -> bool:
        differs = torch.maximum(want_first, low) != torch.maximum(first, low)
        differs |= torch.minimum(want_end, high) != torch.minimum(end, high)
        return not bool((differs & real).any())

    zero, all_keys = torch.zeros_like(place), torch.full_like(place, keys)
    if equal(zero, all_keys) and not equal(zero, place + 1):
        return MaskStructure(causal=False)
    if equal(zero, place + 1):
        return MaskStructure(causal=True)
    back = ((place + 1 - first) * real * (first > low)).amax()
    if int(back) > 0 and equal((place - back + 1).clamp(min=0), place + 1):
        return MaskStructure(causal=True, window=int(back))
    return MaskStructure(False, None, _kind(first, end, real, place), ranges)


def _kind(first: Tensor, end: Tensor, real: Tensor, place: Tensor) -> str:
    """Say what the ranges are, for provenance."""
    prompt = int(real.sum(1).argmax())
    own = real[prompt].nonzero()[:, 0]
    first, end, place = first[prompt, own], end[prompt, own], place[own]
    start = int(place[0]) if len(own) == len(place) else 0
    if bool((end == place + 1).all()):
        steps = (first[1:] != first[:-1]).nonzero()[:, 0]
        if len(steps) and bool((first[1:][steps] == place[1:][steps]).all()):
            size = int(place[1:][steps[0]]) - start
            chunks = (place - start) // size * size + start
            return f"chunks of {size}" if torch.equal(first, chunks) else "packed documents"
    if torch.equal(end, torch.maximum(place + 1, end[0])) and bool((first == first[0]).all()):
        return f"prefix of {int(end[0] - first[0])}"
    inside = bool((first <= place).all()) and bool((end > place).all())
    if inside and torch.equal(first[1:] != first[:-1], end[1:] != end[:-1]):
        return "documents"
    return "ranges of keys"


def named_ranges(
    ranges: Int[Tensor, "#batch query_pos 2"], real: Bool[Tensor, "batch query_pos"], offset: int
) -> str:
    """Say what the ranges of a mask are: chunks, a prefix, documents, or ranges of keys.

    Args:
        ranges: first key and one past the last that each query sees.
        real: the queries that are no padding.
        offset: position of the first query.
    """
    whole = ranges.expand(len(real), -1, -1)
    place = torch.arange(offset, offset + ranges.shape[1], device=ranges.device)
    return _kind(whole[..., 0], whole[..., 1], real, place)


def relative_bias_of(bias: Float[Tensor, "#batch head query_pos more"], keys: int) -> Tensor | None:
    """Return `[#head, queries + keys - 1]` if a bias depends on the distance alone, else None.

    Every entry is compared. A bias with keys hidden by large negative numbers is none.

    Args:
        bias: what is added to scores.
        keys: the number of keys; a bias for a cache of fixed size has more.
    """
    if bias.is_inference():
        return _relative(without_expanded(bias[..., :keys]))
    every = torch.ones(1, 1, dtype=torch.bool, device=bias.device)
    known = _recognised.get(bias)
    if known is not None and known.version == bias._version:
        return known.found
    found = _relative(without_expanded(bias[..., :keys]))
    _recognised[bias] = _Recognised(bias._version, every, found)
    return found


def _relative(bias: Tensor) -> Tensor | None:
    batch, heads, queries, keys = bias.shape
    if batch != 1 or not (queries and keys) or bias.dtype == torch.bool:
        return None
    # distances up to -1 are those of the first key, read from the last query on
    table = torch.cat([bias[0, :, 1:, 0].flip(-1), bias[0, :, 0]], -1)
    if not bool(shown(table).all()):
        return None
    key = torch.arange(keys, device=bias.device) + queries - 1
    for part in _parts(queries, heads * keys):
        query = torch.arange(part.start, part.stop, device=bias.device)[:, None]
        if not torch.equal(bias[0, :, part], table[:, key - query]):
            return None
    return table
