"""Paired tests of the differences between attribution methods over the same texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

from interp.core.clusters import cluster_summary
from interp.core.prompt_means import paired_p
from interp.core.statistics import EXACT_FLIPS, RANDOM_FLIPS, holm, least_sign_flip_p

Array = np.ndarray


@dataclass(frozen=True)
class Difference:
    """Mean difference between two methods, `first` minus `second`, over the texts both have.

    Args:
        first: label of the first method.
        second: label of the second method.
        difference: mean difference over the texts.
        sem: standard error of the mean difference.
        n: the number of texts.
        p: two-sided p-value of a paired permutation test, which flips the signs of the differences
            at random.
        p_holm: `p` corrected for all pairs of the table (Holm 1979).
        p_least: the smallest p-value that this number of texts can give, before correction.
    """

    first: str
    second: str
    difference: float
    sem: float
    n: int
    p: float
    p_holm: float
    p_least: float


@dataclass(frozen=True)
class Limit:
    """Smallest corrected p-value that a table of pairs can reach, and the texts needed for more.

    Args:
        texts: the largest number of texts, or of their clusters, that a pair of methods has in
            common.
        pairs: the number of pairs of methods.
        p: the smallest possible p-value of a single pair.
        p_holm: `p` corrected for all pairs.
        level: corrected p-value below which a difference is significant.
        needed: the smallest number of texts with which a difference can be significant; None if no
            number is enough.
    """

    texts: int
    pairs: int
    p: float
    p_holm: float
    level: float
    needed: int | None

    @property
    def can_show(self) -> bool:
        """True if a difference could be significant with this number of texts."""
        return self.p_holm < self.level

    def __str__(self) -> str:
        if self.can_show or not self.pairs:
            return ""
        more = "" if self.needed is None else f"; {self.needed} texts could"
        texts = f"{self.texts} text{'' if self.texts == 1 else 's'}"
        return (
            f"{texts} cannot show a difference between {self.pairs} pairs of methods: the smallest "
            f"possible p is {self.p:.2g}, corrected {self.p_holm:.2g}, where below "
            f"{self.level:g} is asked{more}"
        )


def limit(
    values: Mapping[str, Float[Array, " text"]],
    level: float,
    flips: int = RANDOM_FLIPS,
    clusters: Sequence[str] | None = None,
) -> Limit:
    """Compute the smallest corrected p-value that `method_differences` could give for these."""
    there = [~np.isnan(x) for x in values.values()]
    shared = [len(_units(a & b, clusters)) for a, b in combinations(there, 2)]
    texts, pairs = max(shared, default=0), len(shared)
    needed = (n for n in range(1, EXACT_FLIPS + 2) if pairs * least_sign_flip_p(n, flips) < level)
    p = least_sign_flip_p(texts, flips)
    return Limit(texts, pairs, p, min(1.0, pairs * p), level, next(needed, None))


def _units(there: Array, clusters: Sequence[str] | None) -> set[str]:
    """Return the independent units, texts or clusters, among the marked texts."""
    indices = np.flatnonzero(there).tolist()
    return {str(i) if clusters is None else clusters[i] for i in indices}


def p_against(
    values: Mapping[str, Float[Array, " text"]],
    baseline: str,
    *,
    flips: int = RANDOM_FLIPS,
    seed: int = 0,
    clusters: Sequence[str] | None = None,
) -> dict[str, float]:
    """Test every method against one baseline, paired over texts and Holm-corrected over methods.

    A text on which either has NaN is left out of that pair.
    """
    others = [method for method in values if method != baseline]
    apart = [values[method] - values[baseline] for method in others]
    p_values = [paired_p(x, clusters, flips=flips, seed=seed) for x in apart]
    return dict(zip(others, holm(np.array(p_values)).tolist(), strict=True)) if others else {}


def method_differences(
    values: Mapping[str, Float[Array, " text"]],
    *,
    flips: int = RANDOM_FLIPS,
    seed: int = 0,
    clusters: Sequence[str] | None = None,
) -> list[Difference]:
    """Test every pair of methods; a text on which either has NaN is left out of that pair.

    With labels of clusters, errors are over clusters and whole clusters are flipped.
    """
    tests: list[tuple[str, str, float, float, int, float]] = []
    units: list[int] = []
    for first, second in combinations(values, 2):
        x = values[first] - values[second]
        one = cluster_summary(x[:, None], clusters)
        p = paired_p(x, clusters, flips=flips, seed=seed)
        tests.append((first, second, float(one.score[0]), float(one.sem[0]), one.n, p))
        units.append(one.clusters)
    corrected = holm(np.array([f[-1] for f in tests]))
    return [
        Difference(*f, float(c), least_sign_flip_p(number, flips))
        for f, c, number in zip(tests, corrected, units, strict=True)
    ]
