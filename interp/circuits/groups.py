"""Groups of heads that stand in for each other: alone each does little, and together much.

A head that the set needs more than the model does has others outside the set that do its work. They
are all patched with it; then halves of them are let go as long as the rest still makes the head
matter (a halving search). The joint effect of the group is judged on held-out pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.standard_errors import standard_error, t_test_p
from interp.core.statistics import holm
from interp.core.ties import reaches

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.circuits.nodes import NodeSet
    from interp.circuits.patched_runs import PatchedRuns

Array = np.ndarray
LARGE = 0.05  # smallest gain of a head without the others, as a share of the gap
LEVEL = 0.05  # of the tests of all groups together
MEMBERS = 5  # most heads of a group: each subset of it is measured
STAGE = "search for groups"
WORDS = {1: "any one", 2: "any two", 3: "any three", 4: "any four"}


@dataclass(frozen=True, eq=False)
class HeadGroup:
    """Heads that stand in for each other, and what each pair loses without some of them."""

    heads: tuple[str, ...]
    lost: dict[frozenset[str], Float[Array, " prompt"]]

    @property
    def joint(self) -> Float[Array, " prompt"]:
        """Loss of each pair without all of them."""
        return self.lost[frozenset(self.heads)]

    @property
    def beyond(self) -> Float[Array, " prompt"]:
        """Loss without all, beyond the sum of the losses without each."""
        return self.joint - sum(self.lost[frozenset([x])] for x in self.heads)

    def share_of(self, head: str) -> Float[Array, " prompt"]:
        """Return the Shapley value of a head: its mean effect over the orders of removal."""
        rest, n = [x for x in self.heads if x != head], len(self.heads)
        total = np.zeros_like(self.joint)
        for size in range(n):
            for some in map(frozenset, combinations(rest, size)):
                total += (self.lost[some | {head}] - self.lost[some]) / (n * comb(n - 1, size))
        return total

    def enough(self) -> int:
        """Return the number of heads of which any is enough; 0 if the heads are not alike so."""
        least = LARGE * abs(float(self.joint.mean()))
        for out in range(len(self.heads) - 1, 0, -1):
            some = map(frozenset, combinations(self.heads, out))
            if all(abs(float(self.lost[x].mean())) < 2 * least for x in some):
                return len(self.heads) - out
        return 0

    def summary(self, unit: str) -> str:
        """Say what the heads do for each other."""
        names, lost = ", ".join(self.heads), f"{float(self.joint.mean()):.3g} {unit} are lost"
        every = {2: "both", 3: "all three", 4: "all four"}.get(len(self.heads), "all")
        if number := self.enough():
            return f"{WORDS[number]} of {names} is enough; without {every} {lost}"
        alone = [f"{float(self.lost[frozenset([x])].mean()):.3g}" for x in self.heads]
        return f"{names} stand in for each other: without {every} {lost}, alone {', '.join(alone)}"

    def rows(self, number: int, unit: str) -> list[dict[str, Any]]:
        """Return a row per head: its effect alone, its share of the group, and that of all."""
        return [
            {
                "group": number,
                "node": head,
                "alone": float(self.lost[frozenset([head])].mean()),
                "share": float(self.share_of(head).mean()),
                "joint": float(self.joint.mean()),
                "summary": self.summary(unit),
            }
            for head in self.heads
        ]


class GroupSearch:
    """Search for the heads that stand in for heads of a set.

    Args:
        runs: The runs to measure on.
        alone: Effect of each node on each pair.
    """

    def __init__(self, runs: PatchedRuns, alone: dict[str, Float[Array, " prompt"]]) -> None:
        self.runs, self.alone = runs, alone
        self.least = LARGE * abs(runs.gap)
        self.some = np.union1d(runs.first, runs.second)
        self.known: dict[frozenset[str], float] = {frozenset(): 0.0}

    def groups(self, chosen: NodeSet) -> list[HeadGroup]:
        """Return the groups, each with a head of the set, whose joint effect is beyond chance."""
        found: dict[frozenset[str], HeadGroup] = {}
        tried = 0
        for head in self._starts(chosen):
            if any(head in group for group in found):
                continue
            tried += 1
            others = self._others(head, chosen)
            if others and len(others) < MEMBERS and self.runs.left >= 2 ** (len(others) + 1):
                heads = tuple(sorted([head, *others], key=self.runs.graph.index.__getitem__))
                found[frozenset(heads)] = HeadGroup(heads, self._lost(heads))
        return self._judged(list(found.values()), tried)

    def _starts(self, chosen: NodeSet) -> list[str]:
        """Return heads that the set needs more than the model does."""
        heads = [x for x in chosen.nodes if x[0] == "L" and x in self.alone]
        if not heads or self.runs.left < len(heads) + 1:
            return []
        runs = self.runs
        sets = [chosen.nodes, *([x for x in chosen.nodes if x != head] for head in heads)]
        kept = runs.kept([runs.only(x) for x in sets], STAGE, choosing=True)[:, self.some].mean(1)
        of_set = dict(zip(heads, kept[0] - kept[1:], strict=True))
        gain = {x: of_set[x] - float(self.alone[x][self.some].mean()) for x in heads}
        return [x for x in sorted(heads, key=lambda x: -gain[x]) if gain[x] >= self.least]

    def _others(self, head: str, chosen: NodeSet) -> list[str]:
        """Return as few heads outside the set as make a head matter, by halving."""
        pool = [x for x in self.runs.graph.writers if x[0] == "L" and x not in chosen.nodes]
        alone, every = self._effect(head, ()), self._effect(head, pool)
        if every - alone < self.least:
            return []
        enough, parts = (alone + every) / 2, 2
        while len(pool) > 1 and self.runs.left > 4 * parts:
            size = -(-len(pool) // parts)
            pieces = [pool[i : i + size] for i in range(0, len(pool), size)]
            rests = [[x for x in pool if x not in piece] for piece in pieces]
            smaller = [x for x in (*pieces, *rests) if 0 < len(x) < len(pool)]
            fits = [x for x in smaller if self._effect(head, x) >= enough]
            if fits:
                pool = min(fits, key=len)
                parts = max(2, min(parts - 1, len(pool)))
            elif size == 1:
                break
            else:
                parts = min(len(pool), 2 * parts)
        return pool

    def _effect(self, head: str, out: Iterable[str]) -> float:
        """Return the effect of a head while others are patched, on the pairs that choose."""
        sets = [frozenset([*out, head]), frozenset(out)]
        new = [x for x in sets if x not in self.known]
        masks = [self.runs.node_mask(*x) for x in new]
        lost = self.runs.effects(masks, STAGE, choosing=True)[:, self.some].mean(1)
        self.known |= dict(zip(new, lost.tolist(), strict=True))
        return self.known[sets[0]] - self.known[sets[1]]

    def _lost(self, heads: Sequence[str]) -> dict[frozenset[str], Float[Array, " prompt"]]:
        sets = [frozenset(x) for n in range(2, len(heads) + 1) for x in combinations(heads, n)]
        lost = self.runs.effects([self.runs.node_mask(*x) for x in sets], STAGE)
        known = {frozenset([x]): self.alone[x] for x in heads}
        return {frozenset(): np.zeros(len(lost[0]))} | known | dict(zip(sets, lost, strict=True))

    def _judged(self, groups: list[HeadGroup], tried: int) -> list[HeadGroup]:
        """Keep the groups whose joint effect exceeds the sum of its parts on held-out pairs."""
        if not groups:
            return []
        held, labels = self.runs.held, self.runs.task.clusters
        labels = None if labels is None else [labels[i] for i in held]
        more = np.stack([x.beyond[held] for x in groups])
        number = len(held) if labels is None else len(set(labels))
        p = t_test_p(more.mean(1), standard_error(more, labels), number - 1)
        p = holm(np.concatenate([p, np.ones(tried - len(groups))]))
        large = reaches(more.mean(1), self.least)
        return [x for x, a, b in zip(groups, p, large, strict=False) if a < LEVEL and b]
