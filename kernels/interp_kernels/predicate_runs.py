"""Runs of keys where predicates hold, read from the predicates themselves and not from tiles.

A predicate over positions is called once with symbols in place of tensors. Comparisons of the key
with a number per query give runs of keys per query, and tokens that equal a token of the query give
the positions of equal tokens, which a sorted list of all tokens holds. So the cost and the memory
are linear in the length (and in the number of equal pairs). Any other operation has no symbol: then
there are no runs, and the predicate is evaluated on tiles.

Positions and indices are those of `interp_kernels.targets`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

    from interp_kernels.problem import Attention
    from interp_kernels.reductions import Mass, Targets

# Equal tokens per query, on average, above which tiles are as cheap: a constant, or this share of
# the keys.
PAIRS, SHARE = 16, 64
_ARITHMETIC = {"add", "sub", "mul", "floordiv", "mod"}
_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


class _NoRuns(Exception):
    """The predicate uses an operation that symbols do not have."""


def _number(x: Any) -> Any:
    """Return a whole number, or one per query; NotImplemented for anything else."""
    if isinstance(x, _Rows):
        return x.value
    return x if isinstance(x, int) and not isinstance(x, bool) else NotImplemented


class _Symbol:
    """Base of the symbols: what none of them can be is said once."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __bool__(self) -> bool:
        raise _NoRuns("`and`, `or`, `not` and `if` need one value")

    def _compared(self, how: str, other: Any) -> Any:
        return NotImplemented

    def __lt__(self, other: Any) -> Any:
        return self._compared("lt", other)

    def __le__(self, other: Any) -> Any:
        return self._compared("le", other)

    def __gt__(self, other: Any) -> Any:
        return self._compared("gt", other)

    def __ge__(self, other: Any) -> Any:
        return self._compared("ge", other)

    def __eq__(self, other: object) -> Any:
        return _known(self._compared("eq", other))

    def __ne__(self, other: object) -> Any:
        return _known(self._compared("ne", other))


def _known(answer: Any) -> Any:
    """Return an answer; Python would compare the objects themselves if there is none."""
    if answer is NotImplemented:
        raise _NoRuns("a comparison without runs")
    return answer


class _Rows(_Symbol):
    """A whole number per query: its position, a token there, or what is computed from these."""

    def __init__(self, value: np.ndarray, keys: int):
        self.value, self.keys = value, keys

    def _with(self, name: str, other: Any, *, turned: bool = False) -> Any:
        number = _number(other)
        if number is NotImplemented:
            return NotImplemented
        if name in ("floordiv", "mod") and np.any(np.equal(self.value if turned else number, 0)):
            raise _NoRuns("a division by zero")
        pair = (number, self.value) if turned else (self.value, number)
        return _Rows(getattr(operator, name)(*pair), self.keys)

    def __neg__(self) -> _Rows:
        return _Rows(-self.value, self.keys)

    def __abs__(self) -> _Rows:
        return _Rows(abs(self.value), self.keys)

    abs = __abs__

    def _compared(self, how: str, other: Any) -> Any:
        if isinstance(other, (_Key, _TokenAtKey)):
            return other._compared(_TURNED[how], self)
        number = _number(other)
        if number is NotImplemented:
            return NotImplemented
        held = getattr(operator, how)(self.value, number)
        end = np.where(held, self.keys, 0)[None]
        return _Runs(np.zeros_like(end), end, self.keys)


for _name in _ARITHMETIC:
    setattr(_Rows, f"__{_name}__", lambda x, y, n=_name: x._with(n, y))
    setattr(_Rows, f"__r{_name}__", lambda x, y, n=_name: x._with(n, y, turned=True))


class _Key(_Symbol):
    """The position of the key, or minus it, plus a number per query; or the size of that."""

    def __init__(self, sign: int, plus: Any, size: tuple[int, int], *, absolute: bool = False):
        self.sign, self.plus, self.size, self.absolute = sign, plus, size, absolute

    def _plus(self, other: Any, sign: int, *, own: int = 1) -> Any:
        number = _number(other)
        if number is NotImplemented or self.absolute:
            return NotImplemented
        return _Key(own * self.sign, own * self.plus + sign * number, self.size)

    def __add__(self, other: Any) -> Any:
        return self._plus(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._plus(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return self._plus(other, 1, own=-1)

    def __neg__(self) -> Any:
        return self._plus(0, 1, own=-1)

    def __abs__(self) -> _Key:
        return _Key(self.sign, self.plus, self.size, absolute=True)

    abs = __abs__

    def _compared(self, how: str, other: Any) -> Any:
        number = _number(other)
        if number is NotImplemented:
            return NotImplemented
        if self.absolute:
            return self._size_compared(how, number)
        # sign * key + plus against a number: the key against a number
        at = np.broadcast_to(self.sign * (number - self.plus), self.size[:1])
        how = how if self.sign > 0 else _TURNED[how]
        if how == "ne":
            return ~_between(at, at + 1, self.size[1])
        low = {"lt": 0, "le": 0, "gt": at + 1, "ge": at, "eq": at}[how]
        high = {"lt": at, "le": at + 1, "gt": self.size[1], "ge": self.size[1], "eq": at + 1}[how]
        return _between(low, high, self.size[1])

    def _size_compared(self, how: str, number: Any) -> _Runs:
        inner = _Key(self.sign, self.plus, self.size)
        bound = _Rows(np.broadcast_to(np.asarray(number), self.size[:1]), self.size[1])
        if how in ("lt", "le"):
            return inner._compared(how, bound) & inner._compared(_TURNED[how], -bound)
        if how in ("gt", "ge"):
            opposite = {"gt": "le", "ge": "lt"}[how]
            return ~self._size_compared(opposite, number)
        exact = self._size_compared("le", number) & self._size_compared("ge", number)
        return exact if how == "eq" else ~exact


def _between(low: Any, high: Any, keys: int) -> _Runs:
    low, high = np.broadcast_arrays(low, high)
    low, high = np.clip(low, 0, keys)[None], np.clip(high, 0, keys)[None]
    return _Runs(low, np.maximum(high, low), keys)


class _Tokens:
    """The tokens of a prompt, indexed by positions; negative ones count from the end."""

    def __init__(self, ids: np.ndarray, size: tuple[int, int]):
        self.ids, self.size, self.read = ids, size, False

    def __getitem__(self, index: Any) -> Any:
        self.read = True
        if isinstance(index, _Rows):
            return _Rows(self.ids[index.value], self.size[1])
        plain = isinstance(index, _Key) and index.sign == 1 and not index.absolute
        if plain and isinstance(index.plus, int):
            return _TokenAtKey(self.ids[np.arange(self.size[1]) + index.plus], self.size)
        raise _NoRuns("tokens at other positions")


class _TokenAtKey(_Symbol):
    """The token at each key, or at a fixed distance from it."""

    def __init__(self, ids: np.ndarray, size: tuple[int, int]):
        self.ids, self.size = ids, size

    def _compared(self, how: str, other: Any) -> Any:
        number = _number(other)
        if number is NotImplemented or how != "eq":
            return NotImplemented
        wanted = np.broadcast_to(np.asarray(number, dtype=np.int64), self.size[:1])
        every = _between(0, np.full(self.size[0], self.size[1]), self.size[1])
        return _Equal(self.ids, wanted, every)


class _Held(_Symbol):
    """A set of keys per query."""

    def __or__(self, other: Any) -> Any:
        raise _NoRuns("a union of equal tokens with anything else")

    __ror__ = __or__


class _Runs(_Held):
    """Runs of keys per query: first and end, `[run, query]`; in order of their first key."""

    def __init__(self, first: np.ndarray, end: np.ndarray, keys: int):
        self.first, self.end, self.keys = first, end, keys

    def __and__(self, other: Any) -> Any:
        if isinstance(other, _Equal):
            return other & self
        if not isinstance(other, _Runs):
            return NotImplemented
        first = np.maximum(self.first[:, None], other.first[None])
        end = np.minimum(self.end[:, None], other.end[None])
        shape = (-1, first.shape[-1])
        return _apart(first.reshape(shape), end.reshape(shape), self.keys)

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, _Runs):
            return NotImplemented
        first, end = (np.concatenate(x) for x in ((self.first, other.first), (self.end, other.end)))
        return _apart(first, end, self.keys)

    def __invert__(self) -> _Runs:
        runs = _apart(self.first, self.end, self.keys)
        done = np.maximum.accumulate(runs.end)
        nothing = np.zeros_like(done[:1])
        first = np.concatenate([nothing, done])
        end = np.concatenate([runs.first, nothing + self.keys])
        return _Runs(first, np.maximum(first, end), self.keys)


def _apart(first: np.ndarray, end: np.ndarray, keys: int) -> _Runs:
    """Sort runs and cut what an earlier one holds, so that no key is held twice."""
    empty = end <= first
    first, end = np.where(empty, 0, first), np.where(empty, 0, end)
    kept = ~empty.all(1)
    kept[: not kept.any()] = True  # one run stays, empty for every query
    first, end = first[kept], end[kept]
    order = np.argsort(first, axis=0, kind="stable")
    first, end = np.take_along_axis(first, order, 0), np.take_along_axis(end, order, 0)
    if len(first) > 1:
        done = np.maximum.accumulate(end)[:-1]
        first[1:] = np.maximum(first[1:], done)
        end = np.maximum(end, first)
    return _Runs(first, end, keys)


class _Equal(_Held):
    """Keys in some runs whose token equals a number per query."""

    def __init__(self, ids: np.ndarray, wanted: np.ndarray, within: _Runs):
        self.ids, self.wanted, self.within = ids, wanted, within

    def __and__(self, other: Any) -> Any:
        if not isinstance(other, _Runs):
            return NotImplemented
        return _Equal(self.ids, self.wanted, self.within & other)

    __rand__ = __and__

    def listed(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Return query and key of every pair, by query.

        Raises:
            _NoRuns: there are more than `most`.
        """
        n = len(self.ids)
        kinds, which = np.unique(self.ids, return_inverse=True)
        order = np.argsort(which, kind="stable")  # by token, then by key
        place = which[order] * n + order
        kind = np.searchsorted(kinds, self.wanted)
        there = (kind < len(kinds)) & (kinds[np.minimum(kind, len(kinds) - 1)] == self.wanted)
        low = np.searchsorted(place, kind * n + self.within.first)
        high = np.searchsorted(place, kind * n + self.within.end)
        counts = np.where(there, high - low, 0)
        if counts.sum() > most:
            raise _NoRuns("more equal tokens than tiles would cost")
        counts, low = counts.T.reshape(-1), low.T.reshape(-1)  # by query, then by run
        query = np.repeat(np.arange(len(self.wanted)).repeat(len(self.within.first)), counts)
        past = np.concatenate([[0], np.cumsum(counts)[:-1]])
        return query, order[np.repeat(low - past, counts) + np.arange(counts.sum())]


def runs_of(
    predicate: Callable[..., Any], queries: range, keys: int, tokens: np.ndarray | None
) -> tuple[np.ndarray | None, bool]:
    """Return query, first key and end of every run where a predicate holds, if it has runs.

    The second value is True if it read the tokens.

    Args:
        predicate: called as `predicate(query, key, tokens=tokens)`.
        queries: positions of the queries; those before the prompt hold nothing.
        keys: number of keys, from position 0.
        tokens: ids of the prompt.
    """
    inside = range(max(queries.start, 0), max(queries.stop, 0))
    size = (len(inside), keys)
    if 0 in size:
        return np.zeros((0, 3), np.int64), True
    position = np.arange(inside.start, inside.stop, dtype=np.int64)
    given = None if tokens is None else _Tokens(tokens.astype(np.int64), size)
    try:
        held = predicate(_Rows(position, keys), _Key(1, 0, size), tokens=given)
        if isinstance(held, _Equal):
            query, key = held.listed(max(PAIRS, keys // SHARE) * size[0])
            found = np.stack([query + inside.start, key, key + 1], 1)
        elif isinstance(held, _Runs):
            wide = held.first.shape[0]
            query = position.repeat(wide)
            found = np.stack([query, held.first.T.reshape(-1), held.end.T.reshape(-1)], 1)
        else:
            return None, True
    except Exception:  # not symbolic: it runs on tiles, which report what is wrong with it
        return None, True
    return found[found[:, 2] > found[:, 1]], given is not None and given.read


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
        shared: dict[tuple[int, int], np.ndarray | None] = {}  # of predicates that read no tokens
        found: list[list[np.ndarray | None]] = []
        for row, start in enumerate(attention.start):
            first = attention.offset - start
            at = range(first, first + shape.query)
            own, each = None if ids is None else ids[row, start:], []
            for i, r in enumerate(asked):
                runs, reads = shared.get((i, start)), False
                if (i, start) not in shared:
                    runs, reads = runs_of(r.predicate, at, shape.key - start, own)
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
