"""Documents that a ledger holds back; they answer without numbers once fresh ones are used up.

One document in five of a corpus is held back, by a hash of its content, so that no question decides
which. Many questions are asked about the same documents, each of which may follow from the answers
so far. An answer is "not shown" or positive ("holds", "holds in part"), and few may be positive, so
that few sequences of answers exist: at most C(n, k + 1) 2^k of n questions lead to positive answer
number k + 1. Each has its part of alpha (Bonferroni), so that the chance that any positive answer
is false stays below alpha: the mechanism SparseValidate, with its bound by the length of a
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

PREFIX = "held:"
"""Beginning of the keys of held-back documents, among the documents of a question."""
ONE_IN = 5  # documents, one of which is held back
FEWEST = 160  # documents of a corpus, below which none is held back
ANSWERS, POSITIVE = 100, 4  # answers on held-back documents, and positive ones among them
NOT_SHOWN = "not shown"


@dataclass(frozen=True)
class HeldAnswers:
    """Number of answers on held-back documents, and of positive ones among them."""

    alpha: float
    number: int = 0
    positive: int = 0

    @property
    def left(self) -> tuple[int, int]:
        """Number of further answers, and of positive ones; without a positive one none is left."""
        positive = POSITIVE - self.positive
        return (ANSWERS - self.number if positive else 0), positive

    @property
    def level(self) -> float:
        """Level of the next answer: alpha for one sequence with as many positive answers."""
        return self.alpha / (POSITIVE * math.comb(ANSWERS, self.positive + 1) * 2**self.positive)

    def after(self, answer: str) -> HeldAnswers:
        """Return the numbers after one more answer."""
        return HeldAnswers(self.alpha, self.number + 1, self.positive + (answer != NOT_SHOWN))


def part_documents(
    windows: Sequence[TextWindow], answered: Collection[str], hold: bool
) -> tuple[list[TextWindow], list[TextWindow]]:
    """Return the documents that may fit or judge, and those held back, with their near copies.

    Those that gave an answer stay held back also where nothing else is.
    """
    first: dict[int, str] = {}
    for window in windows:
        first[window.cluster] = min(window.content, first.get(window.cluster, window.content))
    held = {window.cluster for window in windows if window.content in answered}
    held |= {cluster for cluster, content in first.items() if hold and _is_held(content)}
    parts: tuple[list[TextWindow], list[TextWindow]] = ([], [])
    for window in windows:
        parts[window.cluster in held].append(window)
    return parts


def _is_held(content: str) -> bool:
    return int(hashlib.sha256(f"{PREFIX}{content}".encode()).hexdigest(), 16) % ONE_IN == 0
