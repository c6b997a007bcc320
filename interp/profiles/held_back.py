"""Documents that a ledger holds back, of which words alone are told once fresh ones are used up.

One document in five of a corpus is held back, by a hash of its content, so that no question decides
which. Of the same documents many questions are asked, each of which may follow from the answers so
far. An answer is a word, "not shown" but for a few, so few courses of questions and answers exist;
before answer number k + 1 that is positive there are at most C(n, k + 1) 2^k of them among n
questions, with two positive words. Each has its part of alpha (Bonferroni), so that the chance that
any word is false stays below alpha: the mechanism SparseValidate, with its bound by the length of a
description, of Dwork et al. 2015, "Generalization in Adaptive Data Analysis and Holdout Reuse"
(arXiv 1506.02629).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.profiles.corpus import TextWindow

HELD = "held:"
"""Beginning of the keys of documents held back, among the documents of a question."""
ONE_IN = 5  # documents, one of which is held back
FEWEST = 160  # documents of a corpus, below which none is held back
ASKED, TOLD = 100, 4  # questions about documents held back, and positive words among the answers
NOT_SHOWN = "not shown"


@dataclass(frozen=True)
class WordsTold:
    """Number of questions about documents held back, and of positive words among the answers."""

    alpha: float
    asked: int = 0
    told: int = 0

    @property
    def left(self) -> tuple[int, int]:
        """Number of further questions, and of positive words; no question without a word."""
        words = TOLD - self.told
        return (ASKED - self.asked if words else 0), words

    @property
    def level(self) -> float:
        """Level of the next answer: the part of alpha of one course with as many words."""
        return self.alpha / (TOLD * math.comb(ASKED, self.told + 1) * 2**self.told)

    def after(self, word: str) -> WordsTold:
        """Return the numbers after one more answer."""
        return WordsTold(self.alpha, self.asked + 1, self.told + (word != NOT_SHOWN))


def part_documents(
    windows: Sequence[TextWindow], told: Collection[str], hold: bool
) -> tuple[list[TextWindow], list[TextWindow]]:
    """Return the documents that may fit or judge, and those held back, with their near copies.

    Those of which words were told stay held back also where nothing else is.
    """
    first: dict[int, str] = {}
    for window in windows:
        first[window.cluster] = min(window.content, first.get(window.cluster, window.content))
    held = {window.cluster for window in windows if window.content in told}
    held |= {cluster for cluster, content in first.items() if hold and _is_held(content)}
    parts: tuple[list[TextWindow], list[TextWindow]] = ([], [])
    for window in windows:
        parts[window.cluster in held].append(window)
    return parts


def _is_held(content: str) -> bool:
    return int(hashlib.sha256(f"{HELD}{content}".encode()).hexdigest(), 16) % ONE_IN == 0
