"""Tests of claims: each returns the numbers that its words, in `paper_claims.json`, are about."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import stats

from benchmarks.paper_findings import MEASURED, Finding
from interp.core.intervals import around
from interp.core.literature import find_papers
from interp.core.rank_statistics import paired_spearman
from papers.hashing import code_hash
from papers.hosts import Host, hosts_of

Numbers: TypeAlias = Any  # a number, a tuple of some, or an iterator over them
Test: TypeAlias = Callable[..., Numbers]

SEEDS = range(6)  # of models that a test trains itself


class Interval(NamedTuple):
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Share:
    """A share of independent trials, whose interval is the exact one (Clopper-Pearson)."""

    hits: int
    number: int


@dataclass(frozen=True)
class Ranks:
    """Pairs whose number is Spearman's correlation, with its bootstrap interval."""

    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Worded:
    """A number with words that depend on what was found, in place of those that are kept."""

    number: Any
    words: dict[str, Any]


@cache
def words_of(title: str) -> dict[str, Any]:
    """Return what a claim is tested on (`models`), and words, side and bound of its `numbers`.

    They are written by hand, before the claim is tested for the first time.
    """
    return json.loads(MEASURED.read_text(encoding="utf-8"))[title]


@dataclass(frozen=True)
class Claim:
    """A test of a paper's claim, and the trained models on which it is tested one by one.

    The test is a function of a host where there are hosts.
    """

    title: str
    test: Test
    hosts: tuple[Host, ...] = ()

    @property
    def models(self) -> str:
        """What the claim is tested on, in words."""
        return ", ".join(host.name for host in self.hosts) or words_of(self.title)["models"]

    @property
    def numbers(self) -> list[dict[str, Any]]:
        """Words, unit, side and bound of each number."""
        return words_of(self.title)["numbers"]

    @property
    def code(self) -> str:
        """Hash of what the test computes and of the bounds, without words."""
        bounds = [(x["side"], float(x["bound"])) for x in self.numbers]
        return code_hash(self.test, *((Host, *self.hosts) if self.hosts else ()), also=bounds)

    def measured(self, hosts: Sequence[Host] = ()) -> tuple[Finding, ...]:
        """Run the test, on some of its hosts or on all."""
        given = [((host,), host.name) for host in hosts or self.hosts] or [((), "")]
        return tuple(
            finding(words, number, name)
            for arguments, name in given
            for words, number in zip(self.numbers, several(self.test(*arguments)), strict=True)
        )


def counted(values: Sequence[float] | np.ndarray, of: str) -> Worded:
    """Return values of which it is not known before how many there are."""
    return Worded(values, {"samples": f"{len(values)} {of}"})


def several(found: Numbers) -> tuple[Any, ...]:
    """Return the numbers of a test as a tuple."""
    if isinstance(found, Iterator) or type(found) is tuple:
        return tuple(found)
    return (found,)


def finding(words: dict[str, Any], number: Any, host: str = "") -> Finding:
    """Put a number into its words."""
    if isinstance(number, Worded):
        words, number = words | number.words, number.number
    try:
        ends = interval(number)
    except ValueError as error:
        raise ValueError(f"{words['what']}: {error}") from error
    made = Finding(**words, **ends._asdict(), host=host)
    if isinstance(number, list | np.ndarray) and np.ndim(number) and len(number) != made.units:
        raise ValueError(f"{made.what}: {len(number)} values, and the words say {made.samples}")
    return made


def interval(number: Any) -> Interval:
    """Return a number with its 95 % interval.

    That of several values is Student's of their mean: one value for each independent unit (a seed,
    a prompt, a pair), differences where runs are paired. A single value is exact: a count of all
    cases, or an error of arithmetic, into which no sampling enters.
    """
    if isinstance(number, Interval):
        return number
    if isinstance(number, Share):
        ends = stats.binomtest(int(number.hits), int(number.number)).proportion_ci(0.95, "exact")
        return Interval(number.hits / number.number, float(ends.low), float(ends.high))
    if isinstance(number, Ranks):
        return _correlation(np.asarray(number.x, dtype=float), np.asarray(number.y, dtype=float))
    x = np.asarray(number, dtype=float)
    if not x.ndim:
        return Interval(float(x), float(x), float(x))
    if len(x) < 3 or not np.isfinite(x).all():
        raise ValueError(f"a mean needs three finite values or more, not {x}")
    sem = x.std(ddof=1) / len(x) ** 0.5
    low, high = map(float, around(x.mean(keepdims=True), [(sem, len(x) - 1.0)])[0])
    return Interval(float(x.mean()), low, high)


def _correlation(x: np.ndarray, y: np.ndarray) -> Interval:
    rng, found = np.random.default_rng(0), []
    while len(found) < 1000:
        rows = rng.integers(len(x), size=len(x))
        if np.ptp(x[rows]) and np.ptp(y[rows]):
            found.append(paired_spearman(x[rows], y[rows]))
    low, high = (float(np.quantile(found, q)) for q in (0.025, 0.975))
    return Interval(float(paired_spearman(x, y)), low, high)


CLAIMS: dict[str, Claim] = {}


def claim(title: str, kind: str = "", layers: int = 1, among: str = "") -> Callable[[Test], Test]:
    """Register the test of the claim of a paper, given by a part of its title.

    A claim about trained models names their kind; it is tested on all hosts of the kind that have
    so many layers, or on those among them with a part of a name.
    """
    [paper] = find_papers(title)
    if paper.title in CLAIMS:
        raise ValueError(f"two tests of {paper.title!r}; return several numbers from one")
    hosts = hosts_of(kind, layers, among) if kind else ()

    def registered(test: Test) -> Test:
        CLAIMS[paper.title] = Claim(paper.title, test, hosts)
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
