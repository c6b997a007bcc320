"""Differences between methods over the same texts, and which of them are more than chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

from interp.core.statistics import (
    EXACT_FLIPS,
    RANDOM_FLIPS,
    holm,
    least_sign_flip_p,
    sign_flip_p,
)

Array = np.ndarray


@dataclass(frozen=True)
class Difference:
    """`first` minus `second`, over the texts that both have.

    Args:
        p: two-sided, of a paired permutation test (signs of the differences flipped at random).
        p_holm: the same, corrected for all pairs of the table (Holm 1979).
        p_least: the smallest p that so many texts can give, before correction.
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
    """The smallest corrected p-value that a table of pairs can show, and what it would take.

    Args:
        texts: most texts that any pair has in common, of `pairs` pairs.
        p: smallest possible p-value of one pair by itself; `p_holm` is that corrected for all
            pairs.
        level: corrected p-value below which a difference counts.
        needed: texts from which a difference can count; None where no number is enough.
    """

    texts: int
    pairs: int
    p: float
    p_holm: float
    level: float
    needed: int | None

    @property
    def can_show(self) -> bool:
        """True if any difference could be significant with so many texts."""
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
    values: Mapping[str, Float[Array, " text"]], level: float, flips: int = RANDOM_FLIPS
) -> Limit:
    """The smallest corrected p-value that `differences` of these values could have."""
    there = [~np.isnan(x) for x in values.values()]
    shared = [int((a & b).sum()) for a, b in combinations(there, 2)]
    texts, pairs = max(shared, default=0), len(shared)
    needed = (n for n in range(1, EXACT_FLIPS + 2) if pairs * least_sign_flip_p(n, flips) < level)
    p = least_sign_flip_p(texts, flips)
    return Limit(texts, pairs, p, min(1.0, pairs * p), level, next(needed, None))


def method_differences(
    values: Mapping[str, Float[Array, " text"]], *, flips: int = RANDOM_FLIPS, seed: int = 0
) -> list[Difference]:
    """Every pair of methods; a text where either has NaN is left out of that pair."""
    found: list[tuple[str, str, float, float, int, float]] = []
    for first, second in combinations(values, 2):
        x = values[first] - values[second]
        x = x[~np.isnan(x)]
        n = len(x)
        mean = float(x.mean()) if n else float("nan")
        sem = float(x.std(ddof=1) / n**0.5) if n > 1 else float("nan")
        found.append((first, second, mean, sem, n, sign_flip_p(x, flips=flips, seed=seed)))
    corrected = holm(np.array([f[-1] for f in found]))
    return [
        Difference(*f, float(c), least_sign_flip_p(f[4], flips))
        for f, c in zip(found, corrected, strict=True)
    ]
