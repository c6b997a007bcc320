"""Symbols for query, key and tokens, with which a predicate gives runs of keys.

See `interp_kernels.predicate_runs`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from interp_kernels.prompt_ids import ids_at

if TYPE_CHECKING:
    pass

_ARITHMETIC = {"add", "sub", "mul", "floordiv", "mod"}
# Runs of one token, or of one segment, up to which they are listed for every query.
RUNS = 16
_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


class NoRuns(Exception):
    """The predicate uses an operation that symbols do not have."""


def _number(x: Any) -> Any:
    """Return a whole number, or one per query; NotImplemented for anything else."""
    if isinstance(x, RowSymbol):
        return x.value
    return x if isinstance(x, int) and not isinstance(x, bool) else NotImplemented


class _Symbol:
    """Base of the symbols: what none of them can be is said once."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __bool__(self) -> bool:
        raise NoRuns("`and`, `or`, `not` and `if` need one value")

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
        raise NoRuns("a comparison without runs")
    return answer


class RowSymbol(_Symbol):
    """A whole number per query: its position, a token there, or what is computed from these."""

    def __init__(self, value: np.ndarray, keys: int):
        self.value, self.keys = value, keys

    def _with(self, name: str, other: Any, *, turned: bool = False) -> Any:
        number = _number(other)
        if number is NotImplemented:
            return NotImplemented
        if name in ("floordiv", "mod") and np.any(np.equal(self.value if turned else number, 0)):
            raise NoRuns("a division by zero")
        pair = (number, self.value) if turned else (self.value, number)
        return RowSymbol(getattr(operator, name)(*pair), self.keys)

    def __neg__(self) -> RowSymbol:
        return RowSymbol(-self.value, self.keys)

    def __abs__(self) -> RowSymbol:
        return RowSymbol(abs(self.value), self.keys)

    def abs(self) -> RowSymbol:
        """Return the size of each number, as tensors do."""
        return self.__abs__()

    def _compared(self, how: str, other: Any) -> Any:
        if isinstance(other, (KeySymbol, _TokenAtKey)):
            return other._compared(_TURNED[how], self)
        number = _number(other)
        if number is NotImplemented:
            return NotImplemented
        held = getattr(operator, how)(self.value, number)
        end = np.where(held, self.keys, 0)[None]
        return RunsPerQuery(np.zeros_like(end), end, self.keys)


for _name in _ARITHMETIC:
    setattr(RowSymbol, f"__{_name}__", lambda x, y, n=_name: x._with(n, y))
    setattr(RowSymbol, f"__r{_name}__", lambda x, y, n=_name: x._with(n, y, turned=True))


class KeySymbol(_Symbol):
    """The position of the key, or minus it, plus a number per query; or the size of that."""

    def __init__(self, sign: int, plus: Any, size: tuple[int, int], *, absolute: bool = False):
        self.sign, self.plus, self.size, self.absolute = sign, plus, size, absolute

    def _plus(self, other: Any, sign: int, *, own: int = 1) -> Any:
        number = _number(other)
        if number is NotImplemented or self.absolute:
            return NotImplemented
        return KeySymbol(own * self.sign, own * self.plus + sign * number, self.size)

    def __add__(self, other: Any) -> Any:
        return self._plus(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._plus(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return self._plus(other, 1, own=-1)

    def __neg__(self) -> Any:
        return self._plus(0, 1, own=-1)

    def __abs__(self) -> KeySymbol:
        return KeySymbol(self.sign, self.plus, self.size, absolute=True)

    def abs(self) -> KeySymbol:
        """Return the size of the position, as tensors do."""
        return self.__abs__()

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

    def _size_compared(self, how: str, number: Any) -> RunsPerQuery:
        inner = KeySymbol(self.sign, self.plus, self.size)
        bound = RowSymbol(np.broadcast_to(np.asarray(number), self.size[:1]), self.size[1])
        if how in ("lt", "le"):
            return inner._compared(how, bound) & inner._compared(_TURNED[how], -bound)
        if how in ("gt", "ge"):
            opposite = {"gt": "le", "ge": "lt"}[how]
            return ~self._size_compared(opposite, number)
        exact = self._size_compared("le", number) & self._size_compared("ge", number)
        return exact if how == "eq" else ~exact


def _between(low: Any, high: Any, keys: int) -> RunsPerQuery:
    low, high = np.broadcast_arrays(low, high)
    low, high = np.clip(low, 0, keys)[None], np.clip(high, 0, keys)[None]
    return RunsPerQuery(low, np.maximum(high, low), keys)


class TokenSymbols:
    """The tokens of a prompt, indexed by positions."""

    def __init__(self, ids: np.ndarray, size: tuple[int, int]):
        self.ids, self.size, self.read = ids, size, False

    def __getitem__(self, index: Any) -> Any:
        self.read = True
        if isinstance(index, RowSymbol):
            return RowSymbol(ids_at(self.ids, index.value), self.size[1])
        plain = isinstance(index, KeySymbol) and index.sign == 1 and not index.absolute
        if plain and isinstance(index.plus, int):
            return _TokenAtKey(ids_at(self.ids, np.arange(self.size[1]) + index.plus), self.size)
        raise NoRuns("tokens at other positions")


class _TokenAtKey(_Symbol):
    """The token at each key, or at a fixed distance from it."""

    def __init__(self, ids: np.ndarray, size: tuple[int, int]):
        self.ids, self.size = ids, size

    def _compared(self, how: str, other: Any) -> Any:
        number = _number(other)
        if number is NotImplemented or how not in ("eq", "ne"):
            return NotImplemented
        if isinstance(number, int):
            runs = self._runs(number)
            if runs is not None:
                return runs if how == "eq" else ~runs
        if how == "ne":
            return NotImplemented
        wanted = np.broadcast_to(np.asarray(number, dtype=np.int64), self.size[:1])
        every = _between(0, np.full(self.size[0], self.size[1]), self.size[1])
        return EqualTokens(self.ids, wanted, every)

    def _runs(self, number: int) -> RunsPerQuery | None:
        """Return the keys of one token as runs, equal for every query; None if there are many."""
        here = np.zeros(self.size[1] + 2, bool)
        here[1:-1] = self.ids == number
        ends = np.flatnonzero(here[1:] != here[:-1]).reshape(-1, 2)
        if len(ends) > RUNS:
            return None
        ends = ends if len(ends) else np.zeros((1, 2), np.int64)
        first, end = (np.repeat(x[:, None], self.size[0], axis=1) for x in ends.T)
        return RunsPerQuery(first, end, self.size[1])


class _Held(_Symbol):
    """A set of keys per query."""

    def __or__(self, other: Any) -> Any:
        raise NoRuns("a union of equal tokens with anything else")

    __ror__ = __or__


class RunsPerQuery(_Held):
    """Runs of keys per query: first and end, `[run, query]`; in order of their first key."""

    def __init__(self, first: np.ndarray, end: np.ndarray, keys: int):
        self.first, self.end, self.keys = first, end, keys

    def __and__(self, other: Any) -> Any:
        if isinstance(other, EqualTokens):
            return other & self
        if not isinstance(other, RunsPerQuery):
            return NotImplemented
        if len(self.first) * len(other.first) > RUNS**2:
            raise NoRuns("more runs than tiles would cost")
        first = np.maximum(self.first[:, None], other.first[None])
        end = np.minimum(self.end[:, None], other.end[None])
        shape = (-1, first.shape[-1])
        return _apart(first.reshape(shape), end.reshape(shape), self.keys)

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, RunsPerQuery):
            return NotImplemented
        first, end = (np.concatenate(x) for x in ((self.first, other.first), (self.end, other.end)))
        return _apart(first, end, self.keys)

    def __invert__(self) -> RunsPerQuery:
        runs = _apart(self.first, self.end, self.keys)
        done = np.maximum.accumulate(runs.end)
        nothing = np.zeros_like(done[:1])
        first = np.concatenate([nothing, done])
        end = np.concatenate([runs.first, nothing + self.keys])
        return RunsPerQuery(first, np.maximum(first, end), self.keys)


def _apart(first: np.ndarray, end: np.ndarray, keys: int) -> RunsPerQuery:
    """Sort runs and cut what an earlier one holds, so that no key is held twice."""
    empty = end <= first
    first, end = np.where(empty, 0, first), np.where(empty, 0, end)
    kept = np.logical_not(empty.all(1))
    kept[: not kept.any()] = True  # one run stays, empty for every query
    first, end = first[kept], end[kept]
    order = np.argsort(first, axis=0, kind="stable")
    first, end = np.take_along_axis(first, order, 0), np.take_along_axis(end, order, 0)
    if len(first) > 1:
        done = np.maximum.accumulate(end)[:-1]
        first[1:] = np.maximum(first[1:], done)
        end = np.maximum(end, first)
    return RunsPerQuery(first, end, keys)


class EqualTokens(_Held):
    """Keys in some runs whose token equals a number per query."""

    def __init__(self, ids: np.ndarray, wanted: np.ndarray, within: RunsPerQuery):
        self.ids, self.wanted, self.within = ids, wanted, within

    def __and__(self, other: Any) -> Any:
        if not isinstance(other, RunsPerQuery):
            return NotImplemented
        return EqualTokens(self.ids, self.wanted, self.within & other)

    __rand__ = __and__

    def listed(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Return query and key of every pair, by query.

        Raises:
            NoRuns: there are more than `most`.
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
            raise NoRuns("more equal tokens than tiles would cost")
        counts, low = counts.T.reshape(-1), low.T.reshape(-1)  # by query, then by run
        query = np.repeat(np.arange(len(self.wanted)).repeat(len(self.within.first)), counts)
        past = np.concatenate([[0], np.cumsum(counts)[:-1]])
        return query, order[np.repeat(low - past, counts) + np.arange(counts.sum())]
