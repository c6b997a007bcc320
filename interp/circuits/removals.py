"""Shares that a set of nodes and the model keep without some of the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from interp.causal.pruning.folds import folds
from interp.circuits.smallest import IDLE
from interp.core.ties import largest

if TYPE_CHECKING:
    from torch import Tensor

    from interp.circuits.patched_runs import PatchedRuns

Array = np.ndarray
Subset = tuple[str, ...]
INPUT = "embed"  # the embeddings, which are the input of a circuit and no part of it
RANDOM = 10  # random subsets of a set
GREEDY = 3  # most nodes of a greedy subset
STAGE = "evaluating the set"


class Removals:
    """Measurements of a set, and of the model, without subsets of the set's nodes.

    Every single node, none, all heads and MLPs, and random halves of these are removed at once.

    Args:
        runs: Both runs of every pair.
        inside: The mask of the set's edges.
        nodes: The nodes of the set.
        seed: Seed of the random halves.

    Attributes:
        kept: By subset, what the set and what the model keep without it.
    """

    def __init__(
        self,
        runs: PatchedRuns,
        inside: Float[Tensor, "reader writer"],
        nodes: Sequence[str],
        seed: int,
    ) -> None:
        self.runs, self.inside, self.seed = runs, inside, seed
        self.inner = tuple(name for name in nodes if name != INPUT)
        self.kept: dict[Subset, Float[Array, "2 prompt"]] = {}
        drawn = np.random.default_rng([seed, 12]).random((RANDOM, len(self.inner))) < 0.5
        halves = [self._in_order({self.inner[i] for i in np.flatnonzero(row)}) for row in drawn]
        self._measure([(), *((name,) for name in nodes), self.inner, *halves])

    def _in_order(self, names: set[str]) -> Subset:
        return tuple(name for name in self.inner if name in names)

    def _measure(self, subsets: Sequence[Subset]) -> None:
        new = [subset for subset in dict.fromkeys(subsets) if subset not in self.kept]
        masks = [m for subset in new for m in (self.left(subset), self.runs.node_mask(*subset))]
        values = self.runs.kept(masks, STAGE)
        self.kept |= {subset: values[2 * i : 2 * i + 2] for i, subset in enumerate(new)}

    def left(self, subset: Subset) -> Float[Tensor, "reader writer"]:
        """Make the mask of the set's edges but those that leave some nodes."""
        mask = self.inside.clone()
        mask[:, [self.runs.graph.writer(name) for name in subset]] = 0
        return mask

    def difference(self, subset: Subset) -> Float[Array, " prompt"]:
        """Return what the model keeps without a subset, minus what the set keeps without it."""
        return self.kept[subset][1] - self.kept[subset][0]

    def _apart(self, subsets: Sequence[Subset], pairs: Int[Array, " pair"]) -> Array:
        self._measure(subsets)
        return np.array([abs(self.difference(subset)[pairs].mean()) for subset in subsets])

    def worst(self, pairs: Int[Array, " pair"]) -> Subset:
        """Find the heads and MLPs without which set and model differ most on some pairs.

        Nodes are also added one by one, as long as the difference grows. Of subsets that are nearly
        as bad, the smallest is taken.
        """
        scale, greedy = abs(self.runs.gap), Subset()
        for _ in range(min(GREEDY, len(self.inner))):
            more = [self._in_order({*greedy, x}) for x in self.inner if x not in greedy]
            apart = self._apart([greedy, *more], pairs)
            best = largest(apart[1:], scale=scale)
            if apart[1 + best] < apart[0] + IDLE * scale:
                break
            greedy = more[best]
        subsets = sorted((s for s in self.kept if INPUT not in s), key=len)
        apart = self._apart(subsets, pairs)
        return subsets[int(np.argmax(apart >= apart.max() - IDLE * scale))]

    def judged(self) -> tuple[tuple[Subset, ...], Float[Array, " prompt"]]:
        """Find the worst subset on each half of the pairs, and take its difference on the other.

        The difference of a pair is that of the other half's choice, positive if it has the same
        sign there. Fewer than four pairs are not halved.
        """
        task, every = self.runs.task, np.arange(len(self.runs.task))
        first = second = every
        if len(task) >= 4:
            [fold] = folds(len(task), 0, self.seed, task.clusters)
            first, second = np.flatnonzero(fold.first), np.flatnonzero(fold.second)
        apart, chosen = np.zeros(len(self.runs.task)), []
        for chooses, judges in ((first, second), (second, first)):
            chosen.append(self.worst(chooses))
            values = self.difference(chosen[-1])
            apart[judges] = np.copysign(1.0, values[chooses].mean()) * values[judges]
        return tuple(chosen), apart

    def last_of(self, names: Sequence[str]) -> Float[Array, "name prompt"]:
        """Measure what the set loses without each of some nodes once the others are gone."""
        rest = [tuple(n for n in names if n != name) for name in names]
        masks = [self.left(subset) for subset in (tuple(names), *rest)]
        kept = self.runs.kept(masks, STAGE)
        return kept[1:] - kept[0]
