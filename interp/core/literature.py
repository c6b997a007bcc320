"""Papers that the package answers to, read from `literature.toml` beside this file.

What the tests of their claims measured is read from `literature_measured.json`, which
`benchmarks/paper_claims.py` writes.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from math import isnan
from pathlib import Path
from typing import Any

from interp.core.documents import parse_json, parse_toml
from interp.core.errors import OptionError
from interp.core.ties import reaches

CLOSE = 0.6  # of the best match: titles that an error names
MEASURED = Path(__file__).with_name("literature_measured.json")
STATUSES = ("whole", "in part", "out of scope")
KINDS = {
    "A": "Analyses",
    "V": "Forms of attention",
    "K": "Long contexts",
    "T": "Theory and toy tasks",
}


VERDICTS = ("held", "did not hold", "undecided", "not testable here", "not tested yet")


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

    def __str__(self) -> str:
        """Format the number, its interval and its bound."""
        ends = "" if self.low == self.high else f" [{self.low:.3g}, {self.high:.3g}]"
        return (
            f"{self.what}: {self.value:.3g}{ends} {self.unit}, {self.verdict}: claimed"
            f" {self.side} {self.bound:.3g} ({self.samples})"
        )


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
        found = {finding.verdict for finding in self.findings}
        return next(v for v in ("did not hold", "undecided", "held") if v in found)

    def as_json(self) -> dict[str, Any]:
        """Return what `tested_from` reads."""
        return asdict(self) | {"verdict": self.verdict}

    def __str__(self) -> str:
        """Format the verdict and a line per number."""
        head = f"{self.verdict}, on {self.models} ({self.seconds:.1f} s of processor time)"
        return "\n".join([head, *map(str, self.findings)])


def tested_from(kept: dict[str, Any]) -> Tested:
    """Return a test from what `as_json` gave; the verdict is made from the numbers again."""
    findings: Iterable[dict[str, Any]] = kept["findings"]
    return Tested(kept["models"], tuple(Finding(**f) for f in findings), kept["seconds"])


@dataclass(frozen=True)
class Paper:
    """One paper: what it asks, and what answers it.

    Args:
        title: title as in the list of papers.
        kinds: letters of `KINDS`, joined by "+".
        question: the question in one sentence.
        claim: a sentence that the paper asserts, in words that a number can contradict.
        not_testable: why the claim cannot be tested here, and what is offered instead.
        tested: what was measured of the claim; None before it was.
        status: one of `STATUSES`.
        call: Python expressions that answer it.
        command: command lines that answer it.
        file: files that implement it.
        test: tests (path::name) and pages of benchmarks that check it.
        missing: what of the paper is not covered, and why.
        pending: branch that is to be merged before the entry holds.
    """

    title: str
    kinds: str
    question: str
    status: str
    call: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    file: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    missing: str = ""
    pending: str = ""
    claim: str = ""
    not_testable: str = ""
    tested: Tested | None = None

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        if self.tested:
            return self.tested.verdict
        return "not testable here" if self.not_testable else "not tested yet"

    def __str__(self) -> str:
        """Format the entry as lines of text."""
        lines = [self.title, "", f"Claims: {self.claim}", f"Tested: {self.tested or self.verdict}"]
        lines += [f"Why not: {self.not_testable}"] if self.not_testable else []
        lines += [f"Asks: {self.question}"]
        for name, values in (
            ("Call", self.call),
            ("Command", self.command),
            ("File", self.file),
            ("Checked by", self.test),
        ):
            lines += [f"{name}: {value}" for value in values]
        lines.append(f"Status: {self.status}")
        return "\n".join([*lines, f"Not covered: {self.missing}"] if self.missing else lines)


@cache
def papers() -> tuple[Paper, ...]:
    """Read all entries, in the order of the file."""
    text = files("interp.core").joinpath("literature.toml").read_text(encoding="utf-8")
    measured = parse_json(MEASURED.read_text(encoding="utf-8"))
    found: list[Paper] = []
    for entry in parse_toml(text)["paper"]:
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in entry.items()
        }
        tested = measured.get(values["title"])
        found.append(Paper(**values, tested=tested_from(tested) if tested else None))
    return tuple(found)


def find_papers(name: str) -> list[Paper]:
    """Return the papers whose title contains a text, whatever its case."""
    asked = _plain(name)
    if asked and (found := [p for p in papers() if asked in _plain(p.title)]):
        return found
    raise OptionError(
        f"no paper of the list has {name!r} in its title; {_closest(asked)}; give a part of a "
        "title, whatever its case"
    )


def _plain(text: str) -> str:
    """Drop case and accents."""
    apart = unicodedata.normalize("NFKD", text.strip().casefold())
    return "".join(c for c in apart if not unicodedata.combining(c))


def _closest(asked: str) -> str:
    """Name the titles with the most similar words; a word of many titles counts little."""
    words = [set(re.findall(r"\w+", _plain(p.title))) for p in papers()]
    titles_with = Counter(word for some in words for word in some)
    near = {
        w
        for x in re.findall(r"\w+", asked)
        for w in difflib.get_close_matches(x, titles_with, 1, 0.7)
    }
    rated = sorted(
        ((sum(1 / titles_with[w] for w in near & some), -i) for i, some in enumerate(words)),
        reverse=True,
    )
    close = [papers()[-i].title for share, i in rated[:3] if share >= CLOSE * rated[0][0] > 0]
    if not close:
        return f"the list has {len(words)} papers (docs/literature.md)"
    return "did you mean " + " or ".join(repr(title) for title in close) + "?"
