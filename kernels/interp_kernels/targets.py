"""Predicates over positions, evaluated on a tile or listed where they hold.

Queries and keys are numbered in two ways, and each name here refers to one of them:

positions  count the tokens of a prompt from its first one (`Attention.start`), whatever padding
           precedes it. Predicates receive them, and `pairs` [pair, 3] hold (batch row, query
           position, key position), as `PairMass` takes them.
indices    count along the tensors' own axes, padding included. `entries` [entry, 3] hold (batch
           row, query index, key index).

Query position = query index + offset - start; key position = key index - start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from interp_kernels.errors import PredicateError
from interp_kernels.masks import ALL, WHOLE, Part, key_range, narrow, span
from interp_kernels.prompt_ids import prompt_ids

if TYPE_CHECKING:
    from jaxtyping import Bool, Int
    from torch import Tensor

    from interp_kernels.problem import Attention
    from interp_kernels.reductions import Mass, Targets


# Queries at a time, at least, where a window hides most keys.
FEWEST = 128


def same_for_every_prompt(attention: Attention, batch: slice = ALL) -> bool:
    """Return True if a predicate sees equal positions and tokens in every batch row."""
    first, last = span(batch, attention.q.shape[0])
    if last - first <= 1:
        return True
    if attention.tokens is not None or attention.segments is not None:
        return False
    return len(set(attention.start[first:last])) == 1


def target_tile(
    attention: Attention,
    asked: Mass | Targets,
    part: Part = WHOLE,
) -> Bool[Tensor, "#batch query_pos key_pos"]:
    """Return True where the predicate holds; the batch axis is 1 when all prompts give the same.

    The predicate is called as `predicate(query, key, tokens=tokens)`, per prompt, with positions
    and tokens counted from the prompt's start; a call with segments adds `segments=segments`. It
    is not called for positions before the start, where it counts as False. Tokens and segments at
    positions outside of the prompt, such as `key + 1` of the last key, equal no others.

    Raises:
        PredicateError: it raised, or did not return bool over query by key.
    """
    batch, _, queries, keys = part
    first, last = span(batch, attention.q.shape[0])
    rows = range(first, min(last, first + 1) if same_for_every_prompt(attention, batch) else last)
    tiles = [_prompt_tile(attention, asked, row, queries, keys) for row in rows]
    if tiles:
        return torch.stack(tiles)
    query, key = span(queries, attention.q.shape[2]), span(keys, attention.k.shape[2])
    shape = (0, query[1] - query[0], key[1] - key[0])
    return torch.zeros(shape, dtype=torch.bool, device=attention.q.device)


def _prompt_tile(
    attention: Attention, asked: Mass | Targets, row: int, queries: slice, keys: slice
) -> Bool[Tensor, "query_pos key_pos"]:
    start, device = attention.start[row], attention.q.device
    q0, q1 = span(queries, attention.q.shape[2])
    k0, k1 = span(keys, attention.k.shape[2])
    held = torch.zeros(q1 - q0, k1 - k0, dtype=torch.bool, device=device)
    # The part of the tile that lies inside the prompt.
    q_in, k_in = min(max(q0, start - attention.offset), q1), min(max(k0, start), k1)
    if q_in == q1 or k_in == k1:
        return held
    query = torch.arange(q_in, q1, device=device)[:, None] + (attention.offset - start)
    key = torch.arange(k_in - start, k1 - start, device=device)[None, :]
    end = prompt_end(attention, row)
    tokens = None if attention.tokens is None else prompt_ids(attention.tokens[row, start:end])
    given: dict[str, Any] = {"tokens": tokens}
    if attention.segments is not None:
        given["segments"] = attention.segments.of_prompt(row, start, end)
    name = asked.name.removesuffix(" rows")  # of the rows that the predicate of a mass names
    try:
        answer = asked.predicate(query, key, **given)
    except Exception as error:  # any error of a user-supplied function is reported with its name
        raise PredicateError(
            f"predicate {name!r} raised {type(error).__name__}: {error} "
            f"(called with query [{q1 - q_in}, 1], key [1, {k1 - k_in}] and "
            f"{'no tokens' if tokens is None else f'{len(tokens)} tokens'})"
        ) from error
    if not isinstance(answer, torch.Tensor) or answer.dtype != torch.bool:
        kind = answer.dtype if isinstance(answer, torch.Tensor) else type(answer).__name__
        raise PredicateError(f"predicate {name!r} returned {kind}; expected a bool tensor")
    expected = (q1 - q_in, k1 - k_in)
    sizes = (1,) * (2 - answer.ndim) + tuple(answer.shape)
    if answer.ndim > 2 or any(a not in (1, e) for a, e in zip(sizes, expected, strict=True)):
        raise PredicateError(
            f"predicate {name!r} returned shape {list(answer.shape)} for query "
            f"[{expected[0]}, 1] and key [1, {expected[1]}]; expected {list(expected)}"
        )
    held[q_in - q0 :, k_in - k0 :] = answer
    return held


def prompt_end(attention: Attention, row: int) -> int:
    """Return the index after the last position of a prompt, before padding on the right."""
    if attention.key_padding is None:
        return attention.k.shape[2]
    real = attention.key_padding[row].nonzero()
    return int(real[-1]) + 1 if len(real) else attention.start[row]


def target_entries(
    attention: Attention, asked: Mass | Targets, *, most: int, tile: int = 1 << 22
) -> Int[Tensor, "entry 3"] | None:
    """Return (batch, query, key) indices where the predicate holds and the key is in reach.

    None when there are more than `most`: then listing them saves nothing. Costs one evaluation of
    the predicate per prompt, shared by all heads, `tile` positions at a time.
    """
    found: list[Tensor] = []
    count = 0
    for row in range(attention.q.shape[0]):
        for queries in query_blocks(attention, tile):
            keys = key_range(attention, queries)
            held = _prompt_tile(attention, asked, row, queries, keys)
            entries = held.nonzero()
            if not len(entries):
                continue
            count += len(entries)
            if count > most:
                return None
            entries = entries + entries.new_tensor([queries.start, keys.start])
            found.append(torch.cat([torch.full_like(entries[:, :1], row), entries], 1))
    empty = torch.zeros(0, 3, dtype=torch.int64, device=attention.q.device)
    return torch.cat([empty, *found])


def target_pairs(
    attention: Attention, asked: Mass | Targets, *, most: int, tile: int = 1 << 22
) -> Int[Tensor, "pair 3"] | None:
    """Return `target_entries` as positions of the prompts, in the form that `PairMass` takes."""
    entries = target_entries(attention, asked, most=most, tile=tile)
    return None if entries is None else entries + _to_positions(attention, entries[:, 0])


def _to_positions(attention: Attention, rows: Int[Tensor, " n"]) -> Int[Tensor, "n 3"]:
    """Return offsets that turn (batch row, query index, key index) into positions, by row."""
    start = torch.tensor(attention.start, dtype=torch.int64, device=rows.device)[rows]
    return torch.stack([torch.zeros_like(start), attention.offset - start, -start], 1)


def query_blocks(attention: Attention, tile: int) -> Iterator[slice]:
    """Split queries into blocks of at most `tile` (query, key) positions, at least one query."""
    queries, keys = attention.q.shape[2], max(1, attention.k.shape[2])
    size = max(1, tile // keys)
    if attention.window is not None and narrow(attention):  # half of the positions are visible
        size = min(size, max(FEWEST, attention.window))
    for first in range(0, queries, size):
        yield slice(first, min(queries, first + size))


def key_set(attention: Attention, keys: tuple[int, ...]) -> Bool[Tensor, "batch key_pos"]:
    """Return True at the keys whose prompt position is in the set."""
    device = attention.q.device
    position = torch.arange(attention.k.shape[2], device=device)
    start = torch.tensor(attention.start, dtype=torch.int64, device=device)
    wanted = torch.tensor(keys, dtype=torch.int64, device=device)
    return torch.isin(position[None, :] - start[:, None], wanted)


def entries_of_pairs(attention: Attention, pairs: Int[Tensor, "pair 3"]) -> Int[Tensor, "entry 3"]:
    """Convert prompt positions to indices, each pair once, without those out of range."""
    batch, query, key = len(attention.q), attention.q.shape[2], attention.k.shape[2]
    pairs = pairs.to(attention.q.device, torch.int64)
    at = pairs[:, 0]
    pairs = pairs[(at >= 0) & (at < batch) & (pairs[:, 1:] >= 0).all(-1)]
    entries = pairs - _to_positions(attention, pairs[:, 0])
    inside = (entries[:, 1] >= 0) & (entries[:, 1] < query) & (entries[:, 2] < key)
    return entries[inside].unique(dim=0)
