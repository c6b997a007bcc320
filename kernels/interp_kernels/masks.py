"""Visibility of keys to queries, for a whole call or one tile of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
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


def key_range(attention: Attention, queries: slice = ALL) -> slice:
    """Return the keys that causality and window leave to at least one of these queries."""
    first, last = span(queries, attention.q.shape[2])
    low, high = 0, attention.k.shape[2]
    if attention.causal:
        high = min(high, max(0, attention.offset + last))
    if attention.window is not None:
        low = max(0, attention.offset + first - attention.window + 1)
    return slice(min(low, high), high)


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
    if attention.key_padding is not None:
        seen = seen & attention.key_padding[batch, None, None, keys]
    if attention.query_padding is not None:
        seen = seen & attention.query_padding[batch, None, queries, None]
    if attention.bias is not None:
        seen = seen & _shown(attention, bias_tile(attention, part))
    return seen


def bias_tile(attention: Attention, part: Part = WHOLE) -> Tensor:
    """Return the part of the bias over one tile; axes of size 1 stay."""
    bias = attention.bias
    assert bias is not None
    return bias[tuple(p if n > 1 else ALL for p, n in zip(part, bias.shape, strict=True))]


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
    return bias[tuple(i if n > 1 else i * 0 for i, n in zip(at, bias.shape, strict=True))]


def visible_at(attention: Attention, at: At) -> Tensor:
    """Return the visibility of single entries."""
    position = at.query + attention.offset
    seen = (at.key <= position) if attention.causal else torch.ones_like(at.key <= position)
    if attention.window is not None:
        seen = seen & (at.key > position - attention.window)
    if attention.key_padding is not None:
        seen = seen & attention.key_padding[at.batch, at.key]
    if attention.query_padding is not None:
        seen = seen & attention.query_padding[at.batch, at.query]
    if attention.bias is not None:
        seen = seen & _shown(attention, bias_at(attention, at))
    return seen
