"""Differences between methods over the same texts, and which of them are more than chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

Array = np.ndarray


@dataclass(frozen=True)
class Difference:
    """`first` minus `second`, over the texts that both have.

    Args:
        p: two-sided, of a paired permutation test (signs of the differences flipped at random).
        p_holm: the same, corrected for all pairs of the table (Holm 1979).
    """

    first: str
    second: str
    difference: float
    sem: float
    n: int
    p: float
    p_holm: float


def flipped(x: Float[Array, " text"], flips: int, seed: int) -> float:
    """P-value of mean(x) when signs are arbitrary: exact up to 14 texts, else by random flips."""
    n = len(x)
    if n == 0 or not np.any(x):
        return 1.0
    if n <= 14:
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
    values: Mapping[str, Float[Array, " text"]], *, flips: int = 19_999, seed: int = 0
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
    return [Difference(*f, float(c)) for f, c in zip(found, corrected, strict=True)]
