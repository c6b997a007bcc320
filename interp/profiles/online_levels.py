"""Levels at which hypotheses are judged one after the other, and the questions they follow from.

LORD++ (Ramdas, Yang, Wainwright, Jordan 2017) bounds the expected share of false discoveries in a
sequence of tests without an end: each test spends a part of an allowance, and each discovery
returns some of it. It needs independent p-values, so no document is used by two questions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from interp.core.documents import CHECKSUM, document_checksum
from interp.core.errors import OptionError
from interp.profiles.held_back import PREFIX, HeldAnswers

ALPHA = 0.05
_GAMMA = 0.07720838  # as in the R package onlineFDR; all terms sum to 0.976
_KINDS = (
    {"number": int, "documents": list}
    | dict.fromkeys(("p", "level", "found"), dict)
    | dict.fromkeys(("asked", "verdict", "time", "before"), str)
)


@functools.cache
def _gamma(j: int) -> float:
    return _GAMMA * math.log(max(j, 2)) / (j * math.exp(math.sqrt(math.log(j))))


@dataclass(frozen=True)
class OnlineLevels:
    """Levels of LORD++ for one stream of tests, with a tenth of alpha as the first allowance."""

    alpha: float = ALPHA

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise OptionError(f"alpha={self.alpha} is not a level; give one between 0 and 1")

    def level(self, t: int, discoveries: Iterable[int]) -> float:
        """Return the level of test number t, given the numbers of the tests that discovered."""
        if t < 1:
            raise OptionError(f"t={t} is not the number of a test; the first test is number 1")
        first = self.alpha / 10
        level = first * _gamma(t)
        for k, discovery in enumerate(sorted(discoveries)):
            if discovery < t:
                level += (self.alpha if k else self.alpha - first) * _gamma(t - discovery)
        return level


@dataclass
class AskedQuestions:
    """Questions asked so far, in order, and what they leave to the next one."""

    levels: OnlineLevels
    before: str  # sha256 of the last line, at first of the header
    questions: list[dict[str, Any]] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    answers: HeldAnswers = field(init=False)
    n_tests: dict[str, int] = field(default_factory=dict)
    discoveries: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.answers = HeldAnswers(self.levels.alpha)

    def level(self, stream: str) -> float:
        """Return the level of the next test of a stream."""
        return self.levels.level(self.n_tests.get(stream, 0) + 1, self.discoveries.get(stream, ()))

    def add(self, line: Any) -> None:
        """Append the next question of a file; ValueError says why it cannot be the next one."""
        question = _unsealed(line)
        if question["number"] != (number := len(self.questions) + 1):
            place = f"{question['number']} instead of {number}"
            raise ValueError(f"its number is {place}, so lines were added, removed or reordered")
        if question["before"] != self.before:
            raise ValueError("it does not follow the line before it, so one of them was changed")
        self.check(question["documents"], question["p"])
        held = [key for key in question["documents"] if key.startswith(PREFIX)]
        self._check_levels(**{name: question[name] for name in ("p", "level", "found")})
        self.questions.append(question)
        if held:
            self.held.update(key.removeprefix(PREFIX) for key in held)
            self.answers = self.answers.after(question["verdict"])
        else:
            self.used.update(question["documents"])
        for stream, found in question["found"].items():
            self.n_tests[stream] = self.n_tests.get(stream, 0) + 1
            if found:
                self.discoveries.setdefault(stream, []).append(self.n_tests[stream])

    def check(self, documents: Sequence[str], p: Mapping[str, float]) -> None:
        """Raise ValueError unless the next question may have these documents and p-values."""
        if not all(isinstance(key, str) for key in documents):
            raise ValueError("the keys of its documents are not all texts")
        if len(set(documents)) < len(documents):
            raise ValueError("it names a document twice")
        held = [key.removeprefix(PREFIX) for key in documents if key.startswith(PREFIX)]
        if held and (p or len(held) < len(documents) or not self.answers.left[0]):
            raise ValueError("it is about documents held back, and not by the rules for these")
        before = self.used if held else self.used | self.held
        if again := before.intersection(held or documents):
            raise ValueError(
                f"{len(again):,} of its documents were used before, such as {min(again)!r}"
            )
        for stream, value in p.items():
            if not isinstance(stream, str) or type(value) is not float or not 0 <= value <= 1:
                raise ValueError(f"its p-value of {stream!r} is {value!r}, not between 0 and 1")

    def _check_levels(self, p: dict[str, float], level: dict[str, Any], found: dict) -> None:
        """Raise ValueError unless levels and findings follow from the questions before."""
        if not p.keys() == level.keys() == found.keys():
            raise ValueError("its p-values, levels and findings are not of the same streams")
        for stream, value in level.items():
            right = self.level(stream)
            if type(value) is not float or not math.isclose(value, right):
                raise ValueError(
                    f"its level of {stream!r} is {value!r} instead of {right!r}, which follows from"
                    " the lines before it"
                )
            if found[stream] is not (p[stream] <= value):
                raise ValueError(f"what it found of {stream!r} does not follow from its p-value")


def _unsealed(line: Any) -> dict[str, Any]:
    """Return the entries of a line, which are of the right types and were not changed."""
    if not isinstance(line, dict):
        raise ValueError("it is not an object with the entries of a question")
    question = {name: x for name, x in line.items() if name != CHECKSUM}
    if line.get(CHECKSUM) != document_checksum(question):
        raise ValueError("it was changed after it was written")
    if {name: type(x) for name, x in question.items()} != _KINDS:
        raise ValueError("its entries are not those of a question")
    return question
