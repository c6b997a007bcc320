"""Papers that the package answers to, read from `literature.toml` beside this file."""

from __future__ import annotations

import difflib
import re
import tomllib
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from interp.core.errors import OptionError

CLOSE = 0.6  # of the best match: titles that an error names
STATUSES = ("whole", "in part", "out of scope")
KINDS = {
    "A": "Analyses",
    "V": "Forms of attention",
    "K": "Long contexts",
    "T": "Theory and toy tasks",
}


@dataclass(frozen=True)
class Paper:
    """One paper: what it asks, and what answers it.

    Args:
        title: title as in the list of papers.
        kinds: letters of `KINDS`, joined by "+".
        question: the question in one sentence.
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

    def __str__(self) -> str:
        """Format the entry as lines of text."""
        lines = [self.title, "", f"Asks: {self.question}"]
        for name, values in (
            ("Call", self.call), ("Command", self.command), ("File", self.file),
            ("Checked by", self.test),
        ):  # fmt: skip
            lines += [f"{name}: {value}" for value in values]
        lines.append(f"Status: {self.status}")
        return "\n".join([*lines, f"Not covered: {self.missing}"] if self.missing else lines)


@cache
def papers() -> tuple[Paper, ...]:
    """Read all entries, in the order of the file."""
    text = files("interp.core").joinpath("literature.toml").read_text(encoding="utf-8")
    found: list[Paper] = []
    for entry in tomllib.loads(text)["paper"]:
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in entry.items()
        }
        found.append(Paper(**values))
    return tuple(found)


def find_papers(name: str) -> list[Paper]:
    """Return the papers whose title contains a text, whatever its case.

    Raises:
        OptionError: no title contains it; the message has the closest titles.
    """
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
