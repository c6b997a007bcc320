"""What the tests of the claims of papers measured, kept in `paper_claims.json` beside this file.

`paper_claims.py` writes that file. The verdicts alone stand in `interp/core/literature.toml` too,
since the package prints them; a test compares the two. An entry that says why its numbers decide
nothing (`not_testable`, `undecided`) has no verdict of theirs.
"""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from itertools import cycle
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from interp.core.documents import parse_json
from interp.core.statistics import holm
from interp.core.ties import reaches

MEASURED = Path(__file__).with_name("paper_claims.json")
ENTRIES = Path(__file__).parents[1] / "interp" / "core" / "literature.toml"
ENTRY = "[[paper]]\n"  # first line of one of them
FALSE, NOT_LEARNED, DEPENDS = "did not hold", "not learned here", "depends on the model"
NOT_TESTABLE = "not testable here"
ERROR = 0.05  # p value below which a number is off its bound: what its 95 % interval says
MOST = 100_000  # units that a claim might be decided with
HOSTS = 3  # trained models that a verdict on a claim about trained models needs
# the worst verdict of numbers that are all needed comes first
ORDER = (FALSE, NOT_LEARNED, "undecided", "held")
WORDS = ("what", "unit", "side", "bound", "samples")  # of a number: written by hand
BEHIND = 2.0  # nats behind its bound at which a form of attention has not learned its tasks


@dataclass(frozen=True)
class Finding:
    """A measured number of a claim, and the bound that it must pass for the claim to hold.

    Args:
        what: what the number is, in words.
        value: the number.
        low: low end of its 95 % interval; the number itself where no sampling enters.
        high: high end.
        unit: unit of the three.
        side: "above" or "below": on which side of the bound the claim puts the number.
        bound: the bound.
        samples: what was counted, how many of them; begins with the number of independent units.
        host: trained model that the number is about, if a claim about such models has it.
        decides: False for a number that stands beside those that decide: a shorter training.
    """

    what: str
    value: float
    low: float
    high: float
    unit: str
    side: str
    bound: float
    samples: str
    host: str = ""
    decides: bool = True

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`: where the interval lies."""
        if isnan(self.low) or isnan(self.high):
            return "undecided"
        above, below = not reaches(self.bound, self.low), not reaches(self.high, self.bound)
        if above or below:
            return "held" if above == (self.side == "above") else FALSE
        return FALSE if self.is_exact else "undecided"  # equal to the bound, or an interval on it

    @property
    def is_exact(self) -> bool:
        """True for a number that no sampling enters."""
        return self.low == self.high

    @property
    def is_behind(self) -> bool:
        """True for a loss that may be so far above its bound that nothing was learned."""
        return "nats" in self.unit and self.side == "below" and self.high - self.bound >= BEHIND

    @property
    def p(self) -> float:
        """Two-sided p value of the number being at its bound.

        That of Student's t, from the half-width of the interval, for means; that of the exact
        binomial test for shares of trials; NaN for exact numbers and for bootstrap intervals.
        """
        n, half = self.units, (self.high - self.low) / 2
        if isnan(self.low) or isnan(self.high) or self.is_exact:
            return nan
        if self._is_mean:
            deviations = abs(self.value - self.bound) / half * stats.t.isf(ERROR / 2, n - 1)
            return float(2 * stats.t.sf(deviations, n - 1))
        hits = round(self.value * n)
        if self.unit != "share" or abs(hits / n - self.value) > 1e-6:
            return nan
        trials = stats.binomtest(hits, n, self.bound)
        same = np.allclose(trials.proportion_ci(1 - ERROR), (self.low, self.high), atol=1e-4)
        return float(trials.pvalue) if same else nan

    @property
    def units(self) -> int:
        """Number of independent units: the first word of the samples."""
        count = re.match(r"[\d,]+", self.samples)
        return int(count[0].replace(",", "")) if count else 0

    @property
    def _is_mean(self) -> bool:
        """True where the interval is symmetric, as that of Student's t."""
        half = (self.high - self.low) / 2
        return abs(self.low + half - self.value) < 1e-3 * half

    @property
    def needed(self) -> int:
        """Units that would decide an undecided mean if its value and spread stayed.

        It is 0 for other numbers, and where `MOST` units would not be enough.
        """
        if self.verdict != "undecided" or not self._is_mean:
            return 0
        spread = (self.high - self.value) / stats.t.isf(ERROR / 2, self.units - 1)

        def decides(n: int) -> bool:
            end = stats.t.isf(ERROR / 2, n - 1) * spread * (self.units / n) ** 0.5
            return bool(end < abs(self.value - self.bound))

        n = range(self.units + 1, MOST + 1)  # the more units, the nearer the end of the interval
        at = bisect_left(n, True, key=decides)
        return n[at] if at < len(n) else 0


@dataclass(frozen=True)
class Tested:
    """What the test of a claim measured.

    Args:
        models: what it was measured on, in words.
        findings: the numbers; the claim holds on a model when all of them pass their bounds.
        seconds: processor time of the test.
        training: processor time of the training of the models that it read.
        code: hash of the test, as `papers.finding.Claim.code` makes it.
    """

    models: str
    findings: tuple[Finding, ...]
    seconds: float
    training: float = 0.0
    code: str = ""

    @property
    def by_host(self) -> dict[str, tuple[Finding, ...]]:
        """The numbers of each trained model; those of none count for all."""
        names = dict.fromkeys(x.host for x in self.findings if x.host) or {"": None}
        return {name: tuple(x for x in self.findings if x.host in ("", name)) for name in names}

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`: that of all trained models, which must agree.

        A claim about trained models that too few models can show is not testable here; one that
        holds on one of them and not on another depends on the model; other differences are open.
        """
        if len(self.by_host) < HOSTS and "" not in self.by_host:
            return NOT_TESTABLE
        found = {self.verdict_of(numbers) for numbers in self.by_host.values()}
        if len(found) == 1:
            return found.pop()
        return DEPENDS if {"held", FALSE} <= found else "undecided"

    def verdict_of(self, numbers: Iterable[Finding]) -> str:
        """Return the worst verdict of some numbers, of those that decide."""
        found = {self.verdict_on(x) for x in numbers if x.decides}
        return next(verdict for verdict in ORDER if verdict in found)

    def verdict_on(self, finding: Finding) -> str:
        """Return the verdict on one number; a form that learned nothing says nothing of a claim."""
        behind = finding.verdict == FALSE and "trained alike" in self.models and finding.is_behind
        return NOT_LEARNED if behind else finding.verdict

    @property
    def p(self) -> float:
        """P value of the verdict; NaN where exact numbers or bootstrap intervals decide it.

        On one model, a claim that held needs all its numbers: the largest of their p values. One
        that did not needs a single one: the smallest of those that contradict it, times the number
        of numbers. Over models, a verdict needs the agreement of all: the largest of their p
        values. One that depends on the model needs a model of each side: the least p value of each
        side, the larger of the two, times the number of models.
        """
        if self.verdict == NOT_TESTABLE:
            return nan
        each = [(self.verdict_of(x), self._p_of(x)) for x in self.by_host.values()]
        if self.verdict != DEPENDS:
            known = [p for _, p in each if self.verdict in (FALSE, NOT_LEARNED) or not isnan(p)]
            return float(np.max(known)) if known else nan
        sides = [
            min((p for says, p in each if says == side and not isnan(p)), default=nan)
            for side in ("held", FALSE)
        ]
        return float(np.minimum(1.0, np.max(sides) * len(each)))

    def _p_of(self, numbers: Collection[Finding]) -> float:
        numbers = [x for x in numbers if x.decides]
        if self.verdict_of(numbers) in ("held", "undecided"):
            sampled = [x.p for x in numbers if not x.is_exact]
            return float(np.max(sampled)) if sampled else nan
        least = float(np.min([x.p for x in numbers if x.verdict == FALSE]))
        return float(np.minimum(1.0, least * len(numbers)))

    def as_json(self) -> dict[str, Any]:
        """Return what `tested_from` reads: the words of each number once, and what was found.

        Words that are others on some trained model stand beside its number.
        """
        own = self.findings[: len(self.findings) // len(self.by_host)]  # of one model
        numbers = [{name: getattr(x, name) for name in WORDS} for x in own]
        known = cycle({"host": "", "decides": True} | words for words in numbers)
        found = [
            {k: v for k, v in asdict(x).items() if words.get(k) != v}
            for x, words in zip(self.findings, known, strict=False)
        ]
        kept = vars(self) | {"numbers": numbers, "found": found}
        del kept["findings"]
        return kept

    def __str__(self) -> str:
        """Format the verdict and a line per number."""
        time = f"{self.seconds + self.training:.0f} s of processor time"
        lines = [f"{self.verdict}, on {self.models} ({time}, {self.training:.0f} of it training)"]
        for host, numbers in self.by_host.items():
            lines += [f"{host}: {self.verdict_of(numbers)}"] if host else []
            for x in numbers:
                ends = "" if x.low == x.high else f" [{x.low:.3g}, {x.high:.3g}]"
                says = f", {self.verdict_on(x)}: claimed {x.side} {x.bound:.3g}" * x.decides
                lines.append(f"{x.what}: {x.value:.3g}{ends} {x.unit}{says} ({x.samples})")
        return "\n".join(lines)


def tested_from(kept: dict[str, Any]) -> Tested:
    """Return a test from what `as_json` gave; the verdict is made from the numbers again."""
    rest = {k: v for k, v in kept.items() if k not in ("numbers", "found")}
    pairs = zip(cycle(kept["numbers"]), kept["found"], strict=False)
    return Tested(findings=tuple(Finding(**words | row) for words, row in pairs), **rest)


@cache
def results() -> dict[str, Tested]:
    """Read what was measured, by the title of the paper."""
    kept = parse_json(MEASURED.read_text(encoding="utf-8"))
    return {title: tested_from(one) for title, one in kept.items() if "found" in one}


def corrected(decided: Iterable[str]) -> dict[str, float]:
    """Return the p values of the verdicts on some papers, corrected by Holm's method."""
    titles = sorted(decided)
    values = holm(np.array([results()[title].p for title in titles]))
    return dict(zip(titles, values.tolist(), strict=True))


def with_verdict(title: str, verdict: str, models: str) -> str:
    """Return the text of the entries with the verdict of one claim, and what it is about.

    An entry that says why its numbers decide nothing stays as it is.
    """
    head, *entries = ENTRIES.read_text(encoding="utf-8").split(ENTRY)
    [at] = [i for i, entry in enumerate(entries) if tomllib.loads(entry)["title"] == title]
    if {"not_testable", "undecided"} & set(tomllib.loads(entries[at])):
        return ENTRY.join([head, *entries])
    plain = re.sub(r"^tested(_on)? = .*\n", "", entries[at], flags=re.MULTILINE)
    line = f"tested = {json.dumps(verdict)}\ntested_on = {json.dumps(models)}\n"
    entries[at] = re.sub(r"^(claim = .*\n)", lambda m: m[1] + line, plain, flags=re.MULTILINE)
    return ENTRY.join([head, *entries])
