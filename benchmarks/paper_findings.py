"""What the tests of the claims of papers measured, kept in `paper_claims.json` beside this file.

`paper_claims.py` writes that file. The verdicts alone stand in `interp/core/literature.toml` too,
since the package prints them; a test compares the two.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from math import isnan
from pathlib import Path
from typing import Any

from interp.core.documents import parse_json
from interp.core.ties import reaches

MEASURED = Path(__file__).with_name("paper_claims.json")
ENTRIES = Path(__file__).parents[1] / "interp" / "core" / "literature.toml"
ENTRY = "[[paper]]\n"  # first line of one of them
NOT_LEARNED = "not learned here"
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
        samples: what was counted, how many of them.
    """

    what: str
    value: float
    low: float
    high: float
    unit: str
    side: str
    bound: float
    samples: str

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`: where the interval lies."""
        if isnan(self.low) or isnan(self.high):
            return "undecided"
        above, below = not reaches(self.bound, self.low), not reaches(self.high, self.bound)
        if above or below:
            return "held" if above == (self.side == "above") else "did not hold"
        exact = self.low == self.high  # and equal to the bound
        return "did not hold" if exact else "undecided"

    @property
    def is_behind(self) -> bool:
        """True for a loss so far above its bound that nothing was learned."""
        return "nats" in self.unit and self.side == "below" and self.value - self.bound >= BEHIND


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
        found = {self.verdict_on(finding) for finding in self.findings}
        order = ("did not hold", NOT_LEARNED, "undecided", "held")
        return next(verdict for verdict in order if verdict in found)

    def verdict_on(self, finding: Finding) -> str:
        """Return the verdict on one number; a form that learned nothing says nothing of a claim."""
        trained = "trained alike" in self.models
        return NOT_LEARNED if trained and finding.is_behind else finding.verdict

    def as_json(self) -> dict[str, Any]:
        """Return what `tested_from` reads."""
        return asdict(self) | {"verdict": self.verdict}

    def __str__(self) -> str:
        """Format the verdict and a line per number."""
        lines = [f"{self.verdict}, on {self.models} ({self.seconds:.1f} s of processor time)"]
        for x in self.findings:
            ends = "" if x.low == x.high else f" [{x.low:.3g}, {x.high:.3g}]"
            lines.append(
                f"{x.what}: {x.value:.3g}{ends} {x.unit}, {self.verdict_on(x)}: claimed {x.side}"
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


def with_verdict(title: str, verdict: str, models: str) -> str:
    """Return the text of the entries with the verdict of one claim, and what it is about."""
    head, *entries = ENTRIES.read_text(encoding="utf-8").split(ENTRY)
    [at] = [i for i, entry in enumerate(entries) if tomllib.loads(entry)["title"] == title]
    plain = re.sub(r"^tested(_on)? = .*\n", "", entries[at], flags=re.MULTILINE)
    line = f"tested = {json.dumps(verdict)}\ntested_on = {json.dumps(models)}\n"
    entries[at] = re.sub(r"^(claim = .*\n)", lambda m: m[1] + line, plain, flags=re.MULTILINE)
    return ENTRY.join([head, *entries])
