"""Several behaviours of one head: clusters of its edges by what it reads, each with its own rule.

Vectors of tokens always fall into clumps, so that clumps alone are no behaviours. Clusters of a
head's edges are its behaviours if the head attends to each beyond position by another rule, on
documents that did not fit the clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from interp.core.statistics import RatioBootstrap, finite_interval
from interp.core.ties import ordered_by

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from interp.profiles.head_edges import HeadEdges

COMPONENTS = 8  # principal components in which edges are clustered
FITTED = 400  # edges of a part that suggest these components
MOST = 4  # clusters
STARTS = 10  # random starts of the clusters
FEWEST_EDGES = 100  # of each part
STABLE = 0.5  # Jaccard index of a cluster that one part suggests with that of the other part
LEAST_CLUSTER = 0.05  # share of the head's attention off the sink
LEAST_RULE = 0.1  # share of a cluster's attention that goes by its rule, beyond position
SPACES = ("values", "matches")
"""Spaces of the clusters: the values that are read, and which entries of query and key agree."""


@dataclass(frozen=True, eq=False)
class Behaviour:
    """A cluster of the edges of a head.

    Args:
        rule: number of the rule to whose keys most of it goes beyond position.
        share: of the head's attention off the sink, value and 95 % interval.
        beyond: share of the cluster's attention that goes by the rule, beyond what position puts on
            keys of this rule and cluster.
        stability: Jaccard index of the edges of this cluster as each part of the documents
            suggests it.
        members: which of the edges are of the cluster.
    """

    rule: int
    share: tuple[float, float, float]
    beyond: tuple[float, float, float]
    stability: float
    members: Bool[np.ndarray, " edge"]


@dataclass(frozen=True, eq=False)
class Clustered:
    """The behaviours of a head: one or none is a head of one behaviour.

    Args:
        behaviours: those found, the largest share first.
        space: what was clustered.
    """

    behaviours: tuple[Behaviour, ...] = ()
    space: str = ""


def clustered(
    edges: HeadEdges,
    rules: Sequence[int],
    cluster_of: Int[np.ndarray, " window"],
    part_of: Int[np.ndarray, " window"],
    draws: RatioBootstrap,
    seed: int,
) -> Clustered:
    """Get the behaviours of a head, found on each part of the documents and judged on the other."""
    part = part_of[edges.window]
    best = Clustered()
    if len(rules) < 2 or min(np.bincount(part, minlength=2)) < FEWEST_EDGES:
        return best
    judge = _Judge(edges, rules, cluster_of[edges.window], part, draws)
    for space in SPACES:
        spaces = [_Space.of(edges, space, part == side) for side in (0, 1)]
        points = [[x.points(edges, which) for which in ("", "other_")] for x in spaces if x]
        for n in range(2, MOST + 1) if points else ():
            stability, places = _crossed(points, n, part, edges.weight, seed)
            behaviours = judge.behaviours(places, stability)
            if len(behaviours) > max(len(best.behaviours), 1):
                best = Clustered(behaviours, space)
    return best


def _crossed(
    points: Sequence[Sequence[Float[np.ndarray, "edge component"]]],
    n: int,
    part: Int[np.ndarray, " edge"],
    weight: Float[np.ndarray, " edge"],
    seed: int,
) -> tuple[Float[np.ndarray, " cluster"], Int[np.ndarray, "2 edge"]]:
    """Return the stability of each cluster, and the cluster of every edge by the other part's fit.

    Clusters of both parts have the same numbers, by the edges that they share. Each part has
    another random start.
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.cluster import KMeans

    fits = []
    for side, (fitted, other) in enumerate(points):
        means = KMeans(n, n_init=STARTS, random_state=seed + side)  # pyright: ignore
        means.fit(fitted[part == side])
        fits.append(np.stack([means.predict(fitted), means.predict(other)]))
    shared = np.zeros((n, n))
    np.add.at(shared, (fits[0][0], fits[1][0]), weight)
    pairs = linear_sum_assignment(-shared)
    fits[1] = pairs[1].argsort()[fits[1]]
    both = shared[pairs]
    either = shared.sum(1) + shared.sum(0)[pairs[1]] - both
    return both / np.maximum(either, 1e-9), np.where(part == 0, fits[1], fits[0])


@dataclass(frozen=True, eq=False)
class _Space:
    """Principal components of edges, by products between edges.

    The product of two edges is that of their values, or that of their queries times that of their
    keys: the latter are components of the outer product of query and key, whatever axes these have.
    """

    name: str
    fitted: tuple[Float[np.ndarray, "fitted dim"], ...]
    mean: Float[np.ndarray, " fitted"]
    axes: Float[np.ndarray, "fitted component"]

    @classmethod
    def of(cls, edges: HeadEdges, name: str, used: Bool[np.ndarray, " edge"]) -> _Space | None:
        """Return the space of some edges; None where the attention does not show its vectors."""
        from scipy.linalg import eigh

        vectors = _read(edges, name, "")
        if vectors is None:
            return None
        at = np.flatnonzero(used)
        at = at[:: -(-len(at) // FITTED)]
        fitted = tuple(x[at] for x in vectors)
        products = _products(fitted, fitted)
        mean = products.mean(0)
        centred = products - mean - mean[:, None] + mean.mean()
        n = len(at)
        size, axes = eigh(centred, subset_by_index=(max(n - COMPONENTS, 0), n - 1))
        return cls(name, fitted, mean, axes / np.sqrt(np.maximum(size, 1e-9 * size.max() + 1e-30)))

    def points(self, edges: HeadEdges, which: str) -> Float[np.ndarray, "edge component"]:
        """Return the points of the edges, or of the other keys of their queries."""
        vectors = _read(edges, self.name, which)
        assert vectors is not None
        products = _products(vectors, self.fitted) - self.mean
        return (products - products.mean(1, keepdims=True)) @ self.axes


def _read(edges: HeadEdges, name: str, which: str) -> tuple[np.ndarray, ...] | None:
    """Return the vectors of a space, keys and values beyond the mean of the edges' own."""
    kind = "values" if name == "values" else "keys"
    if kind not in edges.vectors:
        return None
    beyond = edges.vectors[f"{which}{kind}"] - edges.vectors[kind].mean(0)
    return (beyond,) if name == "values" else (edges.vectors["queries"], beyond)


def _products(one: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> np.ndarray:
    products = np.ones((len(one[0]), len(other[0])))
    for a, b in zip(one, other, strict=True):
        products *= a @ b.T
    return products


class _Judge:
    """Shares of clusters and rules with their intervals over documents."""

    def __init__(
        self,
        edges: HeadEdges,
        rules: Sequence[int],
        document: Int[np.ndarray, " edge"],
        part: Int[np.ndarray, " edge"],
        draws: RatioBootstrap,
    ) -> None:
        self.edges, self.rules, self.draws = edges, rules, draws
        self.document, self.part = document, part
        self.fired = edges.fired[:, :, list(rules)].astype(float)

    def behaviours(
        self, places: Int[np.ndarray, "2 edge"], stability: Float[np.ndarray, " cluster"]
    ) -> tuple[Behaviour, ...]:
        """Return the clusters with a rule of their own, on both parts, beyond position."""
        n = len(stability)
        inside = (places == np.arange(n)[:, None, None]).astype(float)
        weight = self.edges.weight
        # mass of every cluster on every rule beyond position, by edge
        beyond = np.einsum("ce,er,e->cer", inside[:, 0], self.fired[0], weight)
        beyond -= np.einsum("ce,er,e->cer", inside[:, 1], self.fired[1], weight)
        mass = inside[:, 0] * weight
        sides = [self.part == side for side in (0, 1)]
        under = np.stack([mass[:, side].sum(1) for side in sides])
        each = np.stack([beyond[:, side].sum(1) for side in sides])
        each /= np.maximum(under, 1e-9)[..., None]
        leading = each.argmax(-1)
        standing = [
            c
            for c in range(n)
            if stability[c] >= STABLE
            and leading[0, c] == leading[1, c]
            and each[:, c, leading[0, c]].min() >= LEAST_RULE
            and mass[c].sum() >= LEAST_CLUSTER * weight.sum()
        ]
        tops = {c: self._summed(beyond[c]) for c in standing}
        unders = {c: self._summed(mass[c]) for c in standing}
        lead = {c: int(leading[0, c]) for c in standing}

        def above(c: int, other: int) -> bool:
            """Return True if the rule of a cluster gets more of it than of another one."""
            here, there = (self.draws.ratios(tops[x][:, lead[c]], unders[x]) for x in (c, other))
            size = tops[c][:, lead[c]].sum() / unders[c].sum()
            size -= tops[other][:, lead[c]].sum() / unders[other].sum()
            return size >= LEAST_RULE and finite_interval(here - there, self.draws.n)[0] > 0

        def apart(chosen: Sequence[int]) -> bool:
            return all(above(a, b) and above(b, a) for a, b in combinations(chosen, 2))

        whole = self._summed(weight)
        order = ordered_by(standing, lambda c: float(unders[c].sum()))
        for size in range(len(order), 1, -1):
            for chosen in combinations(order, size):
                if apart(chosen):
                    return tuple(
                        Behaviour(
                            self.rules[lead[c]],
                            self._ratio(unders[c], whole),
                            self._ratio(tops[c][:, lead[c]], unders[c]),
                            float(stability[c]),
                            places[0] == c,
                        )
                        for c in chosen
                    )
        return ()

    def _summed(self, values: np.ndarray) -> np.ndarray:
        sums = np.zeros((self.draws.n, *values.shape[1:]))
        np.add.at(sums, self.document, values)
        return sums

    def _ratio(self, top: np.ndarray, under: np.ndarray) -> tuple[float, float, float]:
        return float(top.sum() / under.sum()), *self.draws.interval(top, under)
