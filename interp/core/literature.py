"""Papers that the package answers to, read from `literature.toml` beside this file.

What the tests of their claims measured stands beside those tests, in `benchmarks` of the repository
and on its page docs/literature.md; the entries have the verdicts.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from interp.core.documents import parse_toml
from interp.core.errors import OptionError

CLOSE = 0.6  # of the best match: titles that an error names
STATUSES = ("whole", "in part", "out of scope")
KINDS = {
    "A": "Analyses",
    "V": "Forms of attention",
    "K": "Long contexts",
    "T": "Theory and toy tasks",
}


VERDICTS = (
    "held",
    "did not hold",
    "depends on the model",
    "not learned here",
    "undecided",
    "not testable here",
    "not tested yet",
)


@dataclass(frozen=True)
class Paper:
    """One paper: what it asks, and what answers it.

    Args:
        title: title as in the list of papers.
        kinds: letters of `KINDS`, joined by "+".
        question: the question in one sentence.
        claim: a sentence that the paper asserts, in words that a number can contradict.
        place: where the paper says it: "abstract" or "section 3, table 2", then what of the claim
            is ours; "ours: ..." where all of it is a consequence; "not traced" where no text of the
            paper that could be read has it.
        read: what was read, with the address of the paper.
        as_published: True where the test has something like the paper's own conditions.
        not_testable: why the claim cannot be tested here, and what is offered instead.
        undecided: why the numbers that were measured do not decide the claim.
        tested: verdict of the test of the claim; empty before it was tested.
        tested_on: models that the verdict is about.
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
    tested: str = ""
    tested_on: str = ""
    place: str = ""
    read: str = ""
    as_published: bool = False
    undecided: str = ""

    @property
    def why_no_verdict(self) -> str:
        """Reason why there is no verdict although something was measured, or ""."""
        return self.not_testable or self.undecided

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        without = "not testable here" if self.not_testable else "not tested yet"
        return self.tested or ("undecided" if self.undecided else without)

    @property
    def stated(self) -> str:
        """The verdict with its subject: the models that it is about."""
        words = {"depends on the model": "among", "not testable here": "with no more than"}
        about = f" {words.get(self.tested, 'for')} {self.tested_on}"
        return self.verdict + about * bool(self.tested)

    def __str__(self) -> str:
        """Format the entry as lines of text."""
        where = "; the numbers are in docs/literature.md of the repository" if self.tested else ""
        read = self.read and f" (read {self.read})"
        lines = [self.title, "", f"Claims: {self.claim}"]
        lines += [f"Place: {self.place}{read}", f"Tested: {self.stated}{where}"]
        lines += [f"Why no verdict: {self.why_no_verdict}"] if self.why_no_verdict else []
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
    entries: list[dict[str, Any]] = [
        {name: tuple(v) if isinstance(v, list) else v for name, v in entry.items()}
        for entry in parse_toml(text)["paper"]
    ]
    return tuple(Paper(**entry) for entry in entries)


def find_papers(name: str) -> list[Paper]:
    """Return the papers whose title contains a text, whatever its case."""
    asked = _plain(name)
    if asked and (matches := [p for p in papers() if asked in _plain(p.title)]):
        return matches
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


def paper_text(text: str, name: str | None) -> str:
    """Format the papers whose title contains a text."""
    if name is not None:
        raise OptionError(f"give a name ({name!r}) or --paper, not both")
    return "\n\n\n".join(str(paper) for paper in find_papers(text))
