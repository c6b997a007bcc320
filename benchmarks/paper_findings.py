"""What the tests of the claims of papers measured, kept in `paper_claims.json` beside this file.

`paper_claims.py` writes that file. The verdicts alone stand in `interp/core/literature.toml` too,
since the package prints them; a test compares the two. An entry that says why its numbers decide
nothing (`not_testable`, `undecided`) has no verdict of theirs.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
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
ERROR = 0.05  # p value below which a number is off its bound: what its 95 % interval says
LEAST = 3  # units of a mean, if the words of its samples begin with no number
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
        host: model that the number is about, if others have the same number.
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
    def named(self) -> str:
        """The number in words, after its host."""
        return f"{self.host}, {self.what}" if self.host else self.what

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
        count = re.match(r"[\d,]+", self.samples)
        n = int(count[0].replace(",", "")) if count else LEAST
        if isnan(self.low) or isnan(self.high) or self.is_exact:
            return nan
        half = (self.high - self.low) / 2
        if abs(self.low + half - self.value) < 1e-3 * half:
            deviations = abs(self.value - self.bound) / half * stats.t.isf(ERROR / 2, n - 1)
            return float(2 * stats.t.sf(deviations, n - 1))
        hits = round(self.value * n)
        if self.unit != "share" or abs(hits / n - self.value) > 1e-6:
            return nan
        trials = stats.binomtest(hits, n, self.bound)
        same = np.allclose(trials.proportion_ci(1 - ERROR), (self.low, self.high), atol=1e-4)
        return float(trials.pvalue) if same else nan


@dataclass(frozen=True)
class Tested:
    """What the test of a claim measured.

    Args:
        models: what it was measured on, in words.
        findings: the numbers; the claim holds when all of them pass their bounds.
        seconds: processor time of the test.
    """

    models: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`: the worst of the findings."""
        found = {self.agreed_on(finding.what) for finding in self.findings}
        order = (FALSE, NOT_LEARNED, DEPENDS, "undecided", "held")
        return next(verdict for verdict in order if verdict in found)

    def verdict_on(self, finding: Finding) -> str:
        """Return the verdict on one number; a form that learned nothing says nothing of a claim."""
        behind = finding.verdict == FALSE and "trained alike" in self.models and finding.is_behind
        return NOT_LEARNED if behind else finding.verdict

    def agreed_on(self, what: str) -> str:
        """Return the verdict on a number over its hosts, which must agree.

        One that is on both sides of its bound depends on the model; other differences are open.
        """
        found = {self.verdict_on(x) for x in self.findings if x.what == what}
        if len(found) == 1:
            return found.pop()
        return DEPENDS if {"held", FALSE} <= found else "undecided"

    @property
    def p(self) -> float:
        """P value of the verdict; NaN where exact numbers or bootstrap intervals decide it.

        A claim that held needs all its numbers: the largest of their p values. One that did not
        needs a single one: the smallest of those that contradict it, times the number of numbers.
        One that depends on the model needs both. One that is open has the largest of all.
        """
        sampled = [x.p for x in self.findings if not x.is_exact]
        if self.verdict in ("held", "undecided"):
            return float(np.max(sampled)) if sampled else nan
        own = [x for x in self.findings if self.agreed_on(x.what) == self.verdict]
        sides = ("held", FALSE) if self.verdict == DEPENDS else (FALSE,)
        least = [np.min([x.p for x in own if x.verdict == side]) for side in sides]
        return float(np.minimum(1.0, np.max(least) * len(self.findings)))

    def as_json(self) -> dict[str, Any]:
        """Return what `tested_from` reads."""
        found = [{k: v for k, v in asdict(x).items() if k != "host" or v} for x in self.findings]
        return asdict(self) | {"findings": found}

    def __str__(self) -> str:
        """Format the verdict and a line per number."""
        lines = [f"{self.verdict}, on {self.models} ({self.seconds:.1f} s of processor time)"]
        for x in self.findings:
            ends = "" if x.low == x.high else f" [{x.low:.3g}, {x.high:.3g}]"
            lines.append(
                f"{x.named}: {x.value:.3g}{ends} {x.unit}, {self.verdict_on(x)}: claimed {x.side}"
                f" {x.bound:.3g} ({x.samples})"
            )
        return "\n".join(lines)


def tested_from(kept: dict[str, Any]) -> Tested:
    """Return a test from what `as_json` gave; the verdict is made from the numbers again."""
    findings: Iterable[dict[str, Any]] = kept["findings"]
    return Tested(kept["models"], tuple(Finding(**f) for f in findings), kept["seconds"])


@cache
def results() -> dict[str, Tested]:
    """Read what was measured, by the title of the paper."""
    kept = parse_json(MEASURED.read_text(encoding="utf-8"))
    return {title: tested_from(result) for title, result in kept.items()}


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
