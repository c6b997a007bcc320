"""What a test of a claim returns: numbers with intervals, each beside the bound it must pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import stats

from benchmarks.paper_findings import Finding
from interp.core.intervals import around
from interp.core.literature import find_papers
from interp.core.rank_statistics import paired_spearman
from papers.hashing import code_hash
from papers.hosts import Host, hosts_of

Side: TypeAlias = Literal["above", "below"]
Values: TypeAlias = "Sequence[float] | np.ndarray"
Test: TypeAlias = Callable[..., "Finding | Sequence[Finding]"]


@dataclass(frozen=True)
class Claim:
    """A test of a paper's claim.

    Args:
        title: the paper's title.
        models: what it is tested on, in words.
        test: the test; a function of a host where there are hosts.
        hosts: trained models on which it is tested one by one.
    """

    title: str
    models: str
    test: Test
    hosts: tuple[Host, ...] = ()

    @property
    def code(self) -> str:
        """Hash of what the test computes, without its words."""
        return code_hash(self.test, *((Host, *self.hosts) if self.hosts else ()))

    def measured(self, hosts: Sequence[Host] = ()) -> tuple[Finding, ...]:
        """Run the test, on some of its hosts or on all."""
        if not self.hosts:
            return several(self.test())
        return tuple(
            replace(finding, host=host.name)
            for host in hosts or self.hosts
            for finding in several(self.test(host))
        )


def several(found: Finding | Sequence[Finding]) -> tuple[Finding, ...]:
    """Return what a test returned as a tuple."""
    return (found,) if isinstance(found, Finding) else tuple(found)


SEEDS = range(6)  # of models that a test trains itself
TRAINED = f"{len(SEEDS)} seeds"

CLAIMS: dict[str, Claim] = {}


def claim(
    title: str, models: str = "", kind: str = "", layers: int = 1, among: str = ""
) -> Callable[[Test], Test]:
    """Register the test of one paper's claim; the claim is the sentence in literature.toml.

    Args:
        title: part of the paper's title that no other paper has.
        models: what the claim is tested on, in words; the names of the hosts if there are any.
        kind: kind of trained models that the claim is about; it is tested on all hosts of the kind.
        layers: layers that a host must have for the claim to be about it.
        among: part of the names of the hosts, if not all of the kind can show it.
    """
    [paper] = find_papers(title)
    if paper.title in CLAIMS:
        raise ValueError(f"two tests of {paper.title!r}; return several findings from one")
    hosts = hosts_of(kind, layers, among) if kind else ()

    def registered(test: Test) -> Test:
        names = models or ", ".join(host.name for host in hosts)
        CLAIMS[paper.title] = Claim(paper.title, names, test, hosts)
        return test

    return registered


def on_decoders(title: str, layers: int = 1) -> Callable[[Test], Test]:
    """Register a claim about trained language models."""
    return claim(title, kind="decoder of text", layers=layers)


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
    what: str, values: Values, unit: str, side: Side, bound: float, samples: str, host: str = ""
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


def above(what: str, values: Values, samples: str, bound: float = 0, unit: str = "nats") -> Finding:
    """Return the mean of values that the claim puts above a bound."""
    return mean(what, values, unit, "above", bound, samples)


def below(what: str, values: Values, samples: str, bound: float = 0, unit: str = "nats") -> Finding:
    """Return the mean of values that the claim puts below a bound."""
    return mean(what, values, unit, "below", bound, samples)


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
