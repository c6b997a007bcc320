"""Visibility of keys to queries, for a whole call or one tile of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from interp_kernels.bias_rows import BiasRows

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from interp_kernels.problem import Attention

ALL = slice(None)


class Part(NamedTuple):
    """Rectangular part of an attention call; by default the whole call."""

    batch: slice = ALL
    heads: slice = ALL
    queries: slice = ALL
    keys: slice = ALL


WHOLE = Part()
# Keys of a window up to which the entries where a predicate holds are not listed.
NARROW = 1024


def span(part: slice, size: int) -> tuple[int, int]:
    """Return first and one-past-last index of a slice without a step."""
    first, last, step = part.indices(size)
    assert step == 1, "tiles are contiguous"
    return first, max(first, last)


def query_positions(attention: Attention, queries: slice = ALL) -> Tensor:
    """Return absolute positions of queries, as a column to broadcast against keys."""
    first, last = span(queries, attention.q.shape[2])
    device = attention.q.device
    return torch.arange(first, last, device=device)[:, None] + attention.offset


def key_positions(attention: Attention, keys: slice = ALL) -> Tensor:
    """Return absolute positions of keys, as a row to broadcast against queries."""
    first, last = span(keys, attention.k.shape[2])
    return torch.arange(first, last, device=attention.k.device)[None, :]


def key_range(attention: Attention, queries: slice = ALL, batch: slice = ALL) -> slice:
    """Return the keys that causality, window and ranges leave to at least one of these queries."""
    first, last = span(queries, attention.q.shape[2])
    low, high = 0, attention.k.shape[2]
    if attention.causal:
        high = min(high, max(0, attention.offset + last))
    if attention.window is not None:
        low = max(0, attention.offset + first - attention.window + 1)
    if attention.ranges is not None and first < last:
        some = ranges_of(attention, batch)[:, first:last].reshape(-1, 2)
        some = some[some[:, 0] < some[:, 1]]
        low = max(low, int(some[:, 0].min()) if len(some) else high)
        high = min(high, int(some[:, 1].max()) if len(some) else 0)
    return slice(min(low, high), high)


def narrow(attention: Attention) -> bool:
    """Return True if a row has so few keys that reading them all costs less than a list of some."""
    return attention.causal and attention.window is not None and attention.window <= NARROW


def ranges_of(attention: Attention, batch: slice = ALL) -> Int[Tensor, "#batch query_pos 2"]:
    """Return the ranges of some prompts, one if all have the same."""
    ranges = attention.ranges
    assert ranges is not None, "called for a mask of ranges"
    return ranges if len(ranges) == 1 else ranges[batch]


def visible(
    attention: Attention, part: Part = WHOLE
) -> Bool[Tensor, "#batch #head query_pos key_pos"]:
    """Return True where a query sees a key; batch and head axes may have size 1."""
    batch, _, queries, keys = part
    query, key = query_positions(attention, queries), key_positions(attention, keys)
    seen = torch.ones(query.shape[0], key.shape[1], dtype=torch.bool, device=query.device)
    if attention.causal:
        seen = seen & (key <= query)
    if attention.window is not None:
        seen = seen & (key > query - attention.window)
    seen = seen[None, None]
    if attention.ranges is not None:
        seen = seen & _in_ranges(attention, part)
    if attention.key_padding is not None:
        seen = seen & attention.key_padding[batch, None, None, keys]
    if attention.query_padding is not None:
        seen = seen & attention.query_padding[batch, None, queries, None]
    if attention.bias is not None:
        shown = _shown(attention, bias_tile(attention, part))
        # a bias per head and key that hides nothing must not give every head a tile of its own
        if shown.shape[2] > 1 or not bool(shown.all()):
            seen = seen & shown
    return seen


def _in_ranges(attention: Attention, part: Part) -> Bool[Tensor, "#batch 1 query_pos key_pos"]:
    some = ranges_of(attention, part.batch)[:, None, part.queries]
    key = key_positions(attention, part.keys)
    return (key >= some[..., :1]) & (key < some[..., 1:])


def bias_tile(attention: Attention, part: Part = WHOLE) -> Tensor:
    """Return the part of the bias over one tile; axes of size 1 stay."""
    bias = attention.bias
    assert bias is not None
    if isinstance(bias, BiasRows):
        return bias.tile(*part)
    return bias[tuple(p if n > 1 else ALL for p, n in zip(part, bias.shape, strict=True))]


def relative_tile(
    attention: Attention, part: Part = WHOLE
) -> Float[Tensor, "1 #head query_pos key_pos"]:
    """Return the relative bias over one tile."""
    bias = attention.relative_bias
    assert bias is not None
    query, key = (
        span(p, n)
        for p, n in zip(part[2:], (attention.q.shape[2], attention.k.shape[2]), strict=True)
    )
    device, last = bias.device, attention.q.shape[2] - 1
    rows = torch.arange(query[0], query[1], device=device)[:, None]
    distance = torch.arange(key[0], key[1], device=device) - rows + last
    return (bias if len(bias) == 1 else bias[part.heads])[None, :, distance]


def added_tile(attention: Attention, part: Part = WHOLE) -> Tensor | None:
    """Return what is added to the scores of one tile, or None."""
    found = None if attention.relative_bias is None else relative_tile(attention, part)
    if attention.bias is None or attention.bias.dtype == torch.bool:
        return found
    tile = bias_tile(attention, part)
    return tile if found is None else tile.double() + found


def _shown(attention: Attention, tile: Tensor) -> Bool[Tensor, "#batch #head #query_pos #key_pos"]:
    return tile if tile.dtype == torch.bool else tile > attention.hidden_below()


def mask_scores_(
    scores: Float[Tensor, "batch head query_pos key_pos"],
    attention: Attention,
    fill: float,
    part: Part = WHOLE,
) -> None:
    """Add the bias to a tile of scores and write `fill` where the key is hidden, in place.

    Only the edge of a tile that causality or window cuts is written, so a query block against all
    its keys needs no extra pass over them.
    """
    batch, _, queries, keys = part
    if attention.relative_bias is not None:
        scores.add_(relative_tile(attention, part))
    if attention.ranges is not None:
        scores.masked_fill_(~_in_ranges(attention, part), fill)
    if attention.bias is not None:
        tile = bias_tile(attention, part)
        if tile.dtype != torch.bool:
            scores.add_(tile)
        scores.masked_fill_(~_shown(attention, tile), fill)
    first, last = span(queries, attention.q.shape[2])
    low, high = span(keys, attention.k.shape[2])
    query = query_positions(attention, queries)
    if attention.causal and (edge := max(low, attention.offset + first + 1)) < high:
        hidden = torch.arange(edge, high, device=scores.device) > query
        scores[..., edge - low :].masked_fill_(hidden, fill)
    if attention.window is not None:
        edge = min(high, attention.offset + last - attention.window)
        if edge > low:
            hidden = torch.arange(low, edge, device=scores.device) <= query - attention.window
            scores[..., : edge - low].masked_fill_(hidden, fill)
    if attention.key_padding is not None:
        scores.masked_fill_(~attention.key_padding[batch, None, None, keys], fill)
    if attention.query_padding is not None:
        scores.masked_fill_(~attention.query_padding[batch, None, queries, None], fill)


class At(NamedTuple):
    """Single entries of the pattern, by index tensors that broadcast."""

    batch: Tensor
    head: Tensor
    query: Tensor
    key: Tensor


def bias_at(attention: Attention, at: At) -> Tensor:
    """Return the bias of single entries."""
    bias = attention.bias
    assert bias is not None
    if isinstance(bias, BiasRows):
        return bias.at(*at)
    return bias[tuple(i if n > 1 else i * 0 for i, n in zip(at, bias.shape, strict=True))]


def added_at(attention: Attention, at: At) -> Tensor | None:
    """Return what is added to the scores of single entries, or None."""
    found, relative = None, attention.relative_bias
    if relative is not None:
        distance = at.key - at.query + attention.q.shape[2] - 1
        found = relative[at.head if len(relative) > 1 else at.head * 0, distance]
    if attention.bias is None or attention.bias.dtype == torch.bool:
        return found
    entries = bias_at(attention, at)
    return entries if found is None else entries.double() + found


def visible_at(attention: Attention, at: At) -> Tensor:
    """Return the visibility of single entries."""
    position = at.query + attention.offset
    seen = (at.key <= position) if attention.causal else torch.ones_like(at.key <= position)
    if attention.window is not None:
        seen = seen & (at.key > position - attention.window)
    if attention.ranges is not None:
        some = attention.ranges[at.batch if len(attention.ranges) > 1 else at.batch * 0, at.query]
        seen = seen & (at.key >= some[..., 0]) & (at.key < some[..., 1])
    if attention.key_padding is not None:
        seen = seen & attention.key_padding[at.batch, at.key]
    if attention.query_padding is not None:
        seen = seen & attention.query_padding[at.batch, at.query]
    if attention.bias is not None:
        seen = seen & _shown(attention, bias_at(attention, at))
    return seen
