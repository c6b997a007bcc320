"""Differences between methods over the same texts, and which of them are more than chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

Array = np.ndarray
EXACT = 14  # texts up to which every arrangement of signs is counted
FLIPS = 19_999  # random arrangements for more texts


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


def least(n: int, flips: int = FLIPS) -> float:
    """Smallest p-value that `flipped` can give for n texts: every difference has one sign."""
    if n == 0:
        return 1.0
    return 2.0 / 2**n if n <= EXACT else 1.0 / (flips + 1)


def limit(values: Mapping[str, Float[Array, " text"]], level: float, flips: int = FLIPS) -> Limit:
    """The smallest corrected p-value that `differences` of these values could have."""
    there = [~np.isnan(x) for x in values.values()]
    shared = [int((a & b).sum()) for a, b in combinations(there, 2)]
    texts, pairs = max(shared, default=0), len(shared)
    needed = (n for n in range(1, EXACT + 2) if pairs * least(n, flips) < level)
    p = least(texts, flips)
    return Limit(texts, pairs, p, min(1.0, pairs * p), level, next(needed, None))


def flipped(x: Float[Array, " text"], flips: int, seed: int) -> float:
    """P-value of mean(x) when signs are arbitrary: exact up to 14 texts, else by random flips."""
    n = len(x)
    if n == 0 or not np.any(x):
        return 1.0
    if n <= EXACT:
        signs = 1 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        extra = 0
    else:
        signs = 1 - 2.0 * np.random.default_rng(seed).integers(0, 2, size=(flips, n))
        extra = 1  # the arrangement that was seen is one of them
    null, seen = np.abs(signs @ x), abs(x.sum())
    return float(((null >= seen * (1 - 1e-12)).sum() + extra) / (len(signs) + extra))


def holm(p: Float[Array, " test"]) -> Float[Array, " test"]:
    """Step-down corrected p-values: never below the given ones, never above 1."""
    order = np.argsort(p, kind="stable")
    scaled = np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p))))
    out = np.empty_like(p)
    out[order] = np.minimum(scaled, 1.0)
    return out


def differences(
    values: Mapping[str, Float[Array, " text"]], *, flips: int = FLIPS, seed: int = 0
) -> list[Difference]:
    """Every pair of methods; a text where either has NaN is left out of that pair."""
    found: list[tuple[str, str, float, float, int, float]] = []
    for first, second in combinations(values, 2):
        x = values[first] - values[second]
        x = x[~np.isnan(x)]
        n = len(x)
        mean = float(x.mean()) if n else float("nan")
        sem = float(x.std(ddof=1) / n**0.5) if n > 1 else float("nan")
        found.append((first, second, mean, sem, n, flipped(x, flips, seed)))
    corrected = holm(np.array([f[-1] for f in found]))
    return [
        Difference(*f, float(c), least(f[4], flips)) for f, c in zip(found, corrected, strict=True)
    ]
