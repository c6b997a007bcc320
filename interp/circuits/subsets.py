"""Smallest subset of nodes or edges that keeps a share: removal one by one, in pairs, exchange.

    search = Subsets(runs, runs.only, stage, (0.8, 1.2))
    kept = search.smallest(ranking)         # no item of it can leave, nor any two of a few

What a removal leaves is measured on the pairs that order and on those that validate. A set is
enough if its share is not too small on either, nor on both less a standard error, and not too large
on both.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from interp.core.ties import ordered_by, reaches

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.circuits.patched_runs import PatchedRuns

Item = TypeVar("Item", bound=Hashable)
FEW = 30  # changes that are measured together; so many are tried whatever they are expected to lose
MOST = 120  # changes to try
NEAR = 0.1  # share by which a change may be expected to fall short, to be tried
SMALL = 16  # items of a set of which pairs are removed and exchanged
OUTSIDE = 12  # items outside a set to exchange for two of it


class Subsets(Generic[Item]):
    """Search among the subsets of some items.

    Args:
        runs: The runs to measure on.
        mask: Makes the mask of a subset.
        stage: Name of the work, by which passes are counted.
        between: Smallest and largest share that is enough.
        core: Makes the part of a subset that its value depends on.
        most: Forward passes over all pairs; a search that needs more stops where it is.

    Attributes:
        complete: Whether the last search ended by itself.
    """

    def __init__(
        self,
        runs: PatchedRuns,
        mask: Callable[[Iterable[Item]], Float[Tensor, "reader writer"]],
        stage: str,
        between: tuple[float, float],
        most: float = float("inf"),
        core: Callable[[Iterable[Item]], Iterable[Item]] = frozenset,
    ) -> None:
        self.runs, self.mask, self.stage, self.core = runs, mask, stage, core
        self.low, self.high, self.end = *between, runs.forwards + most
        self.known: dict[frozenset[Item], Float[np.ndarray, " 2"]] = {}
        self.complete = True

    def shares(self, sets: Sequence[frozenset[Item]]) -> Float[np.ndarray, "set 2"]:
        """Measure the shares of some subsets, each once."""
        sets = [frozenset(self.core(x)) for x in sets]
        new = list(dict.fromkeys(x for x in sets if x not in self.known))
        rows = self.runs.shares([self.mask(x) for x in new], self.stage) if new else ()
        self.known |= dict(zip(new, rows, strict=True))
        return np.stack([self.known[x] for x in sets])

    def enough(self, sets: Sequence[frozenset[Item]]) -> list[bool]:
        """Tell of each subset whether its share lies in the range."""
        shares = self.shares(sets)
        return (reaches(shares[:, 0], self.low) & reaches(self.high, shares[:, 1])).tolist()

    def affordable(self, number: int) -> bool:
        """Tell whether this many subsets can still be measured, and note it if not."""
        self.complete = self.runs.forwards + number * self.runs.choosing <= self.end
        return self.complete

    def smallest(self, order: Sequence[Item], groups: Callable = lambda items: ()) -> list[Item]:
        """Return a subset that is enough, and of which no item can leave, and of few no two."""
        kept = list(order)[: self.first(list(order))]
        while True:
            kept = self.without_one(kept, groups)
            fewer = []
            if len(kept) <= SMALL:
                fewer = self.without_two(kept) or self.exchanged(kept, order)
            if not fewer or not self.complete:
                return kept
            kept = fewer

    def first(self, order: list[Item]) -> int:
        """Return the number of first items that are enough, by bisection; all if none are."""
        low, high = 0, len(order)
        while high - low > 1 and self.affordable(1):
            middle = (low + high) // 2
            if high > 4 * max(low, 1):
                middle = round((max(low, 1) * high) ** 0.5)
            middle = min(max(middle, low + 1), high - 1)
            if self.enough([frozenset(order[:middle])])[0]:
                high = middle
            else:
                low = middle
        return high

    def without_one(self, kept: list[Item], groups: Callable) -> list[Item]:
        """Remove items, those of least loss first, until none can leave.

        They are first tried in halves, those that cannot leave together in halves again; then one
        by one, as what could not leave at first may do so without the others.
        """
        kept = self._in_halves(kept, groups)
        while len(kept) > 1:
            every = frozenset(kept)
            rest = [every - {x} for x in kept]
            if not self.affordable(len(rest)):
                return kept
            able = [i for i, fits in enumerate(self.enough(rest)) if fits]
            if not able:
                return kept
            lost = dict(zip(able, self._moved(every, [rest[i] for i in able]), strict=True))
            order = ordered_by(able, lost.__getitem__, lowest=True, scale=1.0)
            kept = self._in_halves([kept[i] for i in reversed(order)], lambda _: (), kept)
        return kept

    def _moved(self, every: frozenset[Item], sets: Sequence[frozenset[Item]]) -> list[float]:
        """Return how far the figures of each set are from those of all, the one that moves most."""
        return np.abs(self.shares([every]) - self.shares(sets)).max(1).tolist()

    def _in_halves(
        self, tried: list[Item], groups: Callable, kept: Sequence[Item] = ()
    ) -> list[Item]:
        """Remove the last of some items together, or in halves; the first are tried last.

        An item that cannot leave is not tried again, though it may leave once others have.
        """
        left, stays = frozenset(kept or tried), set[Item]()
        parts = [tuple(tried), *map(tuple, groups(tried))]
        while parts:
            items = parts.pop()
            part = left.intersection(items) - stays
            if not part:
                continue
            if not self.affordable(1):
                break
            if part < left and self.enough([left - part])[0]:
                left -= part
            elif len(part) > 1:
                half = [x for x in items if x in part]
                parts += [tuple(half[: len(half) // 2]), tuple(half[len(half) // 2 :])]
            else:
                stays |= part
        return [x for x in (kept or tried) if x in left]

    def without_two(self, kept: list[Item]) -> list[Item]:
        """Return the rest without two items, if any two can leave; else nothing."""
        return self._changed(kept, [(set(two), set()) for two in combinations(kept, 2)])

    def exchanged(self, kept: list[Item], order: Sequence[Item]) -> list[Item]:
        """Return the rest with one other item in the place of two, if that is enough."""
        others = [x for x in order if x not in set(kept)][:OUTSIDE]
        twos = combinations(kept, 2)
        return self._changed(kept, [(set(two), {x}) for two in twos for x in others])

    def _changed(self, kept: list[Item], changes: list[tuple[set, set]]) -> list[Item]:
        """Return the set after the first change that leaves enough, by the sum of its parts."""
        every = frozenset(kept)
        new = list(dict.fromkeys(x for _, more in changes for x in more))
        single = [*([every - {x} for x in kept]), *([every | {x} for x in new])]
        if len(kept) < 2 or not self.affordable(len(single)):
            return []
        now, change = self.shares([every])[0], self.shares(single)
        moved = dict(zip([*kept, *new], change - now, strict=True))

        def missing(pair: tuple[set, set]) -> float:
            total = now + sum(moved[x] for x in (*pair[0], *pair[1]))
            return float(max(self.low - total[0], total[1] - self.high))

        short = {i: missing(pair) for i, pair in enumerate(changes)}
        near = [i for i in short if short[i] < NEAR or len(changes) <= FEW]
        tried = [changes[i] for i in ordered_by(near, short.__getitem__, lowest=True)[:MOST]]
        for at in range(0, len(tried), FEW):
            sets = [(every - out) | more for out, more in tried[at : at + FEW]]
            if not self.affordable(len(sets)):
                break
            for good, fits in zip(sets, self.enough(sets), strict=True):
                if fits:
                    return [x for x in [*kept, *(good - every)] if x in good]
        return []
