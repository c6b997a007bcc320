"""Effects of single nodes by patching, and of heads while a primary head is patched.

Where the passes do not suffice for all nodes, those are patched whose effect may be largest, by the
estimate of gradients, its error over pairs, and the errors of the estimates of nodes of the same
layer that were patched already.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.methods._attribution import RunPair, effects_without, nodes_along_inputs
from interp.circuits.nodes import larger_effect
from interp.core.standard_errors import standard_error
from interp.core.ties import ordered_by, reaches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from interp.circuits.contrast import ContrastTask
    from interp.circuits.groups import HeadGroup
    from interp.circuits.patched_runs import PatchedRuns

Array = np.ndarray
LARGE = 0.1  # smallest effect of a primary node, as a share of the largest effect
ALONE, NOT = "patched alone", "not patched"
ROUNDS = 3  # in which nodes are patched, if not all are: each learns from those before
_MANY = 40  # passes left, from which two candidates are tried for each primary
_PRIMARIES = 4
_GAIN = 1.5  # estimated with the primary patched over estimated otherwise, of a backup to try
_ERRORS = 2.0  # standard errors over pairs in an upper bound


class MeasuredNodes:
    """Nodes of one search: measured effects, and estimates beside them.

    Args:
        runs: The runs to measure on.

    Attributes:
        alone: Effect of each patched node on each pair.
        estimates: Estimate of each node, or None before `estimate`.
        conditional: Effect of each node while the heads in `on` are patched too, or NaN.
        lost: What each pair loses without each set of heads that stands in `on`.
    """

    def __init__(self, runs: PatchedRuns) -> None:
        self.runs, self.names = runs, list(runs.graph.writers)
        self.alone: dict[str, Array] = {}
        self.estimates: Array | None = None
        self.sem = np.zeros(len(self.names))
        self.conditional = np.full((len(self.names), len(runs.task)), np.nan)
        self.on = [""] * len(self.names)
        self.lost: dict[str, Array] = {}

    def join(self, groups: Sequence[HeadGroup]) -> None:
        """Note what each head of a group does while all others of it are patched."""
        for group in groups:
            for name in group.heads:
                others = [x for x in group.heads if x != name]
                at, on = self.names.index(name), " ".join(others)
                self.on[at], self.lost[on] = on, group.lost[frozenset(others)]
                self.conditional[at] = group.joint - self.lost[on]

    def without(self, on: str) -> Array:
        """Return what each pair loses without the heads that stand in for a node."""
        return self.lost[on] if on in self.lost else self.alone[on]

    def estimate(self, steps: int) -> None:
        """Estimate all nodes by integrated gradients with this number of steps."""
        [screen] = self.runs.gradients(
            lambda pair: (nodes_along_inputs(pair, steps=steps),),
            "estimates by gradients",
            steps,
            steps,
        )
        self.estimates = screen.mean(0)
        self.sem = np.nan_to_num(standard_error(screen.T, self.runs.task.clusters))

    def patch(self, names: list[str], most: float = math.inf) -> None:
        """Patch nodes one by one, in the given order, as far as the passes go."""
        most = min(most, self.runs.left)
        some = [name for name in names if name not in self.alone]
        some = some if len(some) <= most else some[: int(most)]
        lost = self.runs.effects([self.runs.node_mask(name) for name in some], "patching nodes")
        self.alone |= dict(zip(some, lost, strict=True))

    def patch_most_uncertain(self, most: int) -> None:
        """Patch this many nodes, those whose effect may be largest first."""
        for i in range(ROUNDS):
            number = math.ceil((most - len(self.alone)) / (ROUNDS - i))
            bound = self.bounds()
            self.patch(ordered_by(self.names, bound.__getitem__), number)

    def bounds(self) -> dict[str, float]:
        """Return the largest effect that each node may have, by the estimates and their errors."""
        assert self.estimates is not None
        error = self.errors()
        size = np.abs(self.estimates) + _ERRORS * self.sem
        return {name: float(x) + error[name] for name, x in zip(self.names, size, strict=True)}

    def errors(self) -> dict[str, float]:
        """Return the largest error of estimates among patched nodes like each node.

        These are the heads of its layer or the MLPs; if none of them was patched, all nodes.
        """
        if self.estimates is None:
            return dict.fromkeys(self.names, 0.0)
        by_kind: dict[str, list[float]] = {}
        for name, guess in zip(self.names, self.estimates, strict=True):
            if name in self.alone:
                error = abs(float(self.alone[name].mean()) - float(guess))
                by_kind.setdefault(_kind(name), []).append(error)
        largest = max((max(x) for x in by_kind.values()), default=0.0)
        return {name: max(by_kind.get(_kind(name), [largest])) for name in self.names}

    def backups(self) -> list[dict[str, Any]]:
        """Search for heads that matter only while another head is patched."""
        assert self.estimates is not None
        least = LARGE * max((abs(float(x.mean())) for x in self.alone.values()), default=0.0)
        tries = 1 if self.runs.left < _MANY else 2
        primary = self._primaries(least, min(_PRIMARIES, max(1, int(self.runs.left) // 12)))
        pairs: dict[tuple[str, str], Array] = {}
        for name in primary:
            if self.runs.left >= 1 + tries:
                pairs |= self._tried(name, self._without(name), tries)
        return self._rows(pairs, primary, least)

    def _primaries(self, least: float, most: int) -> list[str]:
        """Choose heads without an effect where gradients give one, then those of large effect."""
        assert self.estimates is not None
        size = {name: abs(float(x.mean())) for name, x in self.alone.items() if name[0] == "L"}
        guess = dict(zip(self.names, np.abs(self.estimates).tolist(), strict=True))
        order = ordered_by(size, guess.__getitem__)
        above = {name for name in size if reaches(size[name], least)}
        hidden = [n for n in order if n not in above and reaches(guess[n], least)]
        large = ordered_by((n for n in size if n in above), size.__getitem__)
        chosen = [*hidden[: (most + 1) // 2], *large]
        return list(dict.fromkeys(chosen))[:most]

    def _without(self, name: str) -> Array:
        """Patch a primary head, and estimate all other nodes in that run."""

        def scores(pair: RunPair) -> tuple:
            return effects_without(pair, name)

        value, estimates = self.runs.gradients(scores, "search for backups", 1, 1)
        self.alone.setdefault(name, self.runs.clean - value)
        return estimates.mean(0)

    def _tried(self, name: str, guess: Array, tries: int) -> dict[tuple[str, str], Array]:
        """Measure pairs of a primary head and the heads that gain most while it is patched."""
        assert self.estimates is not None
        gain = {
            other: abs(guess[i])
            for i, other in enumerate(self.names)
            if other[0] == "L" and other != name and abs(guess[i]) > _GAIN * abs(self.estimates[i])
        }
        tried = ordered_by(gain, gain.__getitem__)[:tries]
        self.patch(tried, self.runs.left - 1)
        tried = [other for other in tried if other in self.alone][: int(self.runs.left)]
        both = self.runs.effects(
            [self.runs.node_mask(name, other) for other in tried], "search for backups"
        )
        return {(name, other): lost for other, lost in zip(tried, both, strict=True)}

    def _rows(
        self, pairs: dict[tuple[str, str], Array], primary: list[str], least: float
    ) -> list[dict[str, Any]]:
        heads = sorted({name for pair in pairs for name in pair}, key=self.names.index)
        effect = np.full((len(heads), len(heads), len(self.runs.task)), np.nan)
        for i, name in enumerate(heads):
            effect[i, i] = self.alone[name]
        for (one, other), lost in pairs.items():
            a, b = heads.index(one), heads.index(other)
            effect[a, b] = effect[b, a] = lost
        rows = stand_ins(effect, heads, primary, least, self.runs.task)
        for row in reversed(rows):  # the largest effect is written last and kept
            at, a, b = self.names.index(row["head"]), *map(heads.index, (row["head"], row["for"]))
            self.conditional[at] = effect[a, b] - effect[b, b]
            self.on[at] = row["for"]
        return rows

    @property
    def scores(self) -> Float[Array, "node prompt"]:
        """Effect of each node alone, NaN where it was not patched."""
        none = np.full(len(self.runs.task), np.nan)
        return np.stack([self.alone.get(name, none) for name in self.names])

    @property
    def sizes(self) -> dict[str, float]:
        """The larger effect (alone, or conditional) of the patched nodes on the first half."""
        some = self.runs.first
        size = larger_effect(self.scores[:, some].mean(1), self.conditional[:, some].mean(1))
        every = zip(self.names, np.abs(size).tolist(), strict=True)
        return {name: x for name, x in every if name in self.alone}

    @property
    def ranking(self) -> list[str]:
        """The patched nodes, the largest effect first; ties in the order of the model."""
        sizes = self.sizes
        return ordered_by(sizes, sizes.__getitem__, scale=abs(self.runs.gap))

    def summary(self, name: str) -> str:
        """Describe how a node was measured."""
        out = self.on[self.names.index(name)]
        return (ALONE if name in self.alone else NOT) + (f", and with {out} out" if out else "")


def _kind(name: str) -> str:
    return name.partition("H")[0] if name[0] == "L" else name.rstrip("0123456789")


def stand_ins(
    effect: np.ndarray, heads: list[str], first: list[str], least: float, task: ContrastTask
) -> list[dict[str, Any]]:
    """Find heads that matter while another is patched, and less than half as much otherwise."""
    mean, rows = effect.mean(2), []
    for b, other in enumerate(heads):
        for a, one in enumerate(heads):
            if a == b or (one not in first and other not in first):
                continue
            now, alone = mean[a, b] - mean[b, b], mean[a, a]
            if reaches(abs(now), least) and not reaches(2 * abs(alone), abs(now)):
                each = effect[a, b] - effect[b, b]
                sem = float(standard_error(each[None], task.clusters)[0])
                rows.append(
                    {
                        "head": one,
                        "for": other,
                        "alone": float(alone),
                        "without_it": float(now),
                        "sem": sem,
                    }
                )
    return ordered_by(rows, lambda row: abs(row["without_it"]))
