"""What a test of a claim returns: numbers with intervals, each beside the bound it must pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import stats

from benchmarks.paper_findings import Finding
from interp.core.intervals import around
from interp.core.literature import find_papers
from interp.core.rank_statistics import paired_spearman

Side: TypeAlias = Literal["above", "below"]
Test: TypeAlias = Callable[[], "Finding | Sequence[Finding]"]


@dataclass(frozen=True)
class Claim:
    """A test of a paper's claim: the paper's title, the models it is tested on, and the test."""

    title: str
    models: str
    test: Test


SEEDS = range(6)  # of models that a test trains itself
TRAINED = f"{len(SEEDS)} seeds"

CLAIMS: dict[str, Claim] = {}


def claim(title: str, models: str) -> Callable[[Test], Test]:
    """Register the test of one paper's claim; the claim is the sentence in literature.toml.

    Args:
        title: part of the paper's title that no other paper has.
        models: what the claim is tested on, in words.
    """
    [paper] = find_papers(title)
    if paper.title in CLAIMS:
        raise ValueError(f"two tests of {paper.title!r}; return several findings from one")

    def registered(test: Test) -> Test:
        CLAIMS[paper.title] = Claim(paper.title, models, test)
        return test

    return registered


def over_seeds(
    measure: Callable[[Any, int], Any], *kinds: Any, seeds: Sequence[int] = SEEDS
) -> list[np.ndarray]:
    """Return an array for each kind of model: the measure of each seed."""
    return [np.array([measure(kind, seed) for seed in seeds]) for kind in kinds]


def exact(what: str, value: float, unit: str, side: Side, bound: float, samples: str) -> Finding:
    """Return a number that no sampling enters: a count of all cases, or an error of arithmetic."""
    value = float(value)
    return Finding(what, value, value, value, unit, side, float(bound), samples)


def mean(
    what: str,
    values: Sequence[float] | np.ndarray,
    unit: str,
    side: Side,
    bound: float,
    samples: str,
    host: str = "",
) -> Finding:
    """Return the mean of independent values with its 95 % t interval.

    Give one value per independent unit (a seed, a prompt, a pair), differences where runs are
    paired; a mean of equal values has the interval of no width. A number that several models have
    is given once for each of them, its `host`.
    """
    x = np.asarray(values, dtype=float)
    if len(x) < 3 or not np.isfinite(x).all():
        raise ValueError(f"{what}: a mean needs three finite values or more, not {x}")
    sem = x.std(ddof=1) / len(x) ** 0.5
    low, high = map(float, around(x.mean(keepdims=True), [(sem, len(x) - 1.0)])[0])
    return Finding(what, float(x.mean()), low, high, unit, side, float(bound), samples, host)


def share(what: str, hits: int, number: int, side: Side, bound: float, samples: str) -> Finding:
    """Return a share of independent trials with its exact (Clopper-Pearson) 95 % interval."""
    ends = stats.binomtest(int(hits), int(number)).proportion_ci(0.95, "exact")
    low, high = float(ends.low), float(ends.high)
    return Finding(what, hits / number, low, high, "share", side, float(bound), samples)


def rank_correlation(
    what: str, x: Sequence[float], y: Sequence[float], side: Side, bound: float, samples: str
) -> Finding:
    """Return Spearman's correlation of independent pairs with its 95 % bootstrap interval."""
    a, b = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    rng, found = np.random.default_rng(0), []
    while len(found) < 1000:
        rows = rng.integers(len(a), size=len(a))
        if np.ptp(a[rows]) and np.ptp(b[rows]):
            found.append(paired_spearman(a[rows], b[rows]))
    low, high = (float(np.quantile(found, q)) for q in (0.025, 0.975))
    value = float(paired_spearman(a, b))
    return Finding(what, value, low, high, "rank correlation", side, float(bound), samples)
