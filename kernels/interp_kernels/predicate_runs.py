"""Runs of keys where predicates hold, read from the predicates themselves and not from tiles.

A predicate over positions is called once with symbols in place of tensors. Comparisons of the key
with a number per query give runs of keys per query, tokens that equal a fixed one and segments of
one name give the runs of these, and tokens that equal a token of the query give the positions of
equal tokens, which a sorted list of all tokens holds. So the cost and the memory are linear in the
length (and in the number of equal pairs). Any other operation has no symbol: then there are no
runs, and the predicate is evaluated on tiles.

Positions and indices are those of `interp_kernels.targets`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp_kernels.predicate_symbols import (
    EqualTokens,
    KeySymbol,
    RowSymbol,
    RunsPerQuery,
    TokenSymbols,
)
from interp_kernels.targets import prompt_end

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

    from interp_kernels.problem import Attention
    from interp_kernels.reductions import Mass, Targets
    from interp_kernels.segments import PromptSegments

# Equal tokens per query, on average, above which tiles are as cheap: a constant, or this share of
# the keys.
PAIRS, SHARE = 16, 64


def runs_of(
    predicate: Callable[..., Any],
    queries: range,
    keys: int,
    tokens: np.ndarray | None,
    segments: Callable[[Callable[[Tensor], TokenSymbols]], PromptSegments] | None = None,
) -> tuple[np.ndarray | None, bool]:
    """Return query, first key and end of every run where a predicate holds, if it has runs.

    The second value is True if it read the tokens or the segments.

    Args:
        predicate: called as `predicate(query, key, tokens=tokens)`, with segments where these are.
        queries: positions of the queries; those before the prompt hold nothing.
        keys: number of keys, from position 0.
        tokens: ids of the prompt.
        segments: makes the segments of the prompt, given what turns their numbers into symbols.
    """
    inside = range(max(queries.start, 0), max(queries.stop, 0))
    size = (len(inside), keys)
    if 0 in size:
        return np.zeros((0, 3), np.int64), True
    position = np.arange(inside.start, inside.stop, dtype=np.int64)
    symbols: list[TokenSymbols] = []

    def symbol(ids: np.ndarray) -> TokenSymbols:
        symbols.append(TokenSymbols(ids.astype(np.int64), size))
        return symbols[-1]

    given: dict[str, Any] = {"tokens": None if tokens is None else symbol(tokens)}
    if segments is not None:
        given["segments"] = segments(lambda labels: symbol(labels.cpu().numpy()))
    try:
        held = predicate(RowSymbol(position, keys), KeySymbol(1, 0, size), **given)
        if isinstance(held, EqualTokens):
            query, key = held.listed(max(PAIRS, keys // SHARE) * size[0])
            found = np.stack([query + inside.start, key, key + 1], 1)
        elif isinstance(held, RunsPerQuery):
            wide = held.first.shape[0]
            query = position.repeat(wide)
            found = np.stack([query, held.first.T.reshape(-1), held.end.T.reshape(-1)], 1)
        else:
            return None, True
    except Exception:  # not symbolic: it runs on tiles, which report what is wrong with it
        return None, True
    return found[found[:, 2] > found[:, 1]], any(x.read for x in symbols)


class PromptRuns:
    """Runs of one prompt: those of query i are `runs[at[i] : at[i + 1]]`: key, end, column."""

    def __init__(self, parts: Sequence[np.ndarray], queries: int, query: int, key: int):
        column = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        every = np.concatenate([np.zeros((0, 3), np.int64), *parts])
        rows = every[:, 0] + query
        self.at = np.searchsorted(np.sort(rows), np.arange(queries + 1)).astype(np.int64)
        order = np.argsort(rows, kind="stable")
        runs = np.column_stack([every[:, 1:] + key, column])[order]
        self.runs = np.ascontiguousarray(runs, dtype=np.int32)

    def numbered(self, index: Mapping[int, int], columns: int) -> tuple[np.ndarray, np.ndarray]:
        """Return `at` and `runs` of some columns, each with another number."""
        if all(index.get(column) == column for column in range(columns)):
            return self.at, self.runs
        new = np.array([index.get(column, -1) for column in range(columns)], dtype=np.int32)
        column = new[self.runs[:, 2]]
        kept = column >= 0
        past = np.concatenate([[0], kept.cumsum()])
        return past[self.at], np.column_stack([self.runs[:, :2], column])[kept]


def own_runs(
    runs: KeyRuns | None, batch: int, index: Mapping[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first run of each query of a prompt, and runs with the index of their column."""
    if runs is None:
        return np.zeros(0, np.int64), np.zeros((0, 3), np.int32)
    return runs.prompts[batch].numbered(index, runs.columns)


@dataclass(frozen=True, eq=False)
class KeyRuns:
    """Runs of keys, by indices, where each of several predicates (the columns) holds.

    One evaluation serves every head of every layer of a batch; `prompts` holds the same object for
    prompts that share it.
    """

    prompts: tuple[PromptRuns, ...]
    columns: int

    @staticmethod
    def of(attention: Attention, asked: Sequence[Mass | Targets]) -> tuple[KeyRuns, list[int]]:
        """Return the runs of those predicates that have them, and the indices of these."""
        shape = attention.shape
        ids = None if attention.tokens is None else attention.tokens.cpu().numpy()
        # of predicates that read neither tokens nor segments
        shared: dict[tuple[int, int], np.ndarray | None] = {}
        found: list[list[np.ndarray | None]] = []
        for row, start in enumerate(attention.start):
            first = attention.offset - start
            at = range(first, first + shape.query)
            end, each = prompt_end(attention, row), []
            own = None if ids is None else ids[row, start:end]
            named = None
            if attention.segments is not None:
                named = partial(attention.segments.of_prompt, row, start, end)
            for i, r in enumerate(asked):
                runs, reads = shared.get((i, start)), False
                if (i, start) not in shared:
                    runs, reads = runs_of(r.predicate, at, shape.key - start, own, named)
                if not reads:
                    shared[i, start] = runs
                each.append(runs)
            found.append(each)
        kept = [i for i in range(len(asked)) if all(each[i] is not None for each in found)]
        made: dict[tuple, PromptRuns] = {}
        prompts = []
        for start, each in zip(attention.start, found, strict=True):
            parts = [part for i in kept if (part := each[i]) is not None]
            same = start, *map(id, parts)
            if same not in made:
                made[same] = PromptRuns(parts, shape.query, start - attention.offset, start)
            prompts.append(made[same])
        return KeyRuns(tuple(prompts), len(kept)), kept

    def counts(self, attention: Attention) -> Int[Tensor, "column batch 1 query_pos"] | None:
        """Return the number of visible keys of each predicate, or None under a bias."""
        if attention.bias is not None:
            return None
        shape, device = attention.shape, attention.q.device
        found = np.zeros((self.columns, shape.batch, 1, shape.query), np.int64)
        for row, prompt in enumerate(self.prompts):
            query = np.arange(shape.query).repeat(np.diff(prompt.at))
            low, high = prompt.runs[:, 0].astype(np.int64), prompt.runs[:, 1].astype(np.int64)
            place = query + attention.offset
            if attention.causal:
                high = np.minimum(high, place + 1)
            if attention.window is not None:
                low = np.maximum(low, place - attention.window + 1)
            if attention.ranges is not None:
                seen = attention.ranges[row % len(attention.ranges)].cpu().numpy()[query]
                low, high = np.maximum(low, seen[:, 0]), np.minimum(high, seen[:, 1])
            high = np.maximum(high, low)
            number = high - low
            if attention.key_padding is not None:
                before = np.zeros(shape.key + 1, np.int64)
                before[1:] = attention.key_padding[row].cpu().numpy().cumsum()
                number = before[np.minimum(high, shape.key)] - before[np.minimum(low, shape.key)]
            if attention.query_padding is not None:
                number = number * attention.query_padding[row].cpu().numpy()[query]
            np.add.at(found[:, row, 0], (prompt.runs[:, 2], query), number)
        return torch.from_numpy(found).to(device)
