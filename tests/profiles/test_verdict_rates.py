"""Rates of false verdicts: p-values at the boundary, and questions that follow the answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interp.profiles import verdict
from interp.profiles.ledger import QuestionLedger
from interp.profiles.online_levels import OnlineLevels
from interp.profiles.verdict import HOLDS, IN_PART, SHARES, p_above


@pytest.mark.parametrize("n", [16, 32])
def test_p_values_at_the_boundary(n: int) -> None:
    """Documents of unequal weight, whose shares are .5 on average and lie evenly around it."""
    rng, draws = np.random.default_rng(n), 4000
    normal, flat = rng.normal(0.5, 0.3, (draws, n)), rng.beta(1, 1, (draws, n))
    for share, spread in ((normal, 0), (normal, 1), (flat, 1)):
        under = rng.lognormal(0, spread, (draws, n))
        p = np.array([p_above(x * u, u, 0.5) for x, u in zip(share, under, strict=True)])
        for level in (0.05, 0.005, 0.001):
            error = np.sqrt(level * (1 - level) / draws)
            assert np.mean(p <= level) <= level + 3 * error, level


class _Levels:
    """Levels of questions of which none finds anything, without a file."""

    def __init__(self) -> None:
        self.asked = dict.fromkeys(SHARES, 0)

    def level(self, word: str) -> float:
        self.asked[word] += 1
        return OnlineLevels().level(self.asked[word], ())


def attack(rng: np.random.Generator, n: int, fresh: bool, level: Callable, told: Callable) -> int:
    """Ask 200 questions about unions of predicates that mean nothing, and keep what scores best.

    Every predicate adds noise to a document's gain. Without fresh documents this is the same noise
    in every question, so that what is kept adds up. Returns how often something was found.
    """
    kept = np.zeros(n)
    best, found = 1.0, 0
    fixed = rng.lognormal(0, 0.5, n)
    for number in range(200):
        under = rng.lognormal(0, 0.5, n) if fresh else fixed
        base = rng.normal(0, 0.1 * np.sqrt(number), n) if fresh else kept
        new = base + rng.normal(0, 0.1, n)
        nats = {"position": under, "with_position": under * (1 - new)}
        nats["random_keys"] = under * (1 - rng.normal(0, 0.02, n))
        tested = verdict.Tested.of(nats, "position", "with_position", ("random_keys",))
        word = tested.word({word: level(word) for word in SHARES})
        found += word in (HOLDS, IN_PART)
        told(number, tested, word)
        if tested.p[IN_PART] < best:
            best, kept = tested.p[IN_PART], new
    return found


def test_200_questions_find_nothing_with_a_ledger(tmp_path: Path) -> None:
    rng, books = np.random.default_rng(0), QuestionLedger(tmp_path, {"model": "attacked"})

    def write(number: int, tested: Any, word: str) -> None:
        names = [f"{number} {at}" for at in range(32)]
        with books.turn() as turn:
            turn.write(asked=str(number), documents=names, p=dict(tested.p), verdict=word)

    def level(word: str) -> float:
        with books.turn() as turn:
            return turn.level(word)

    assert attack(rng, 32, True, level, write) == 0
    assert len(books.questions()) == 200
    again = [attack(rng, 32, True, _Levels().level, lambda *_: None) for _ in range(20)]
    assert sum(map(bool, again)) <= 1


def test_200_questions_on_the_same_documents_find_what_is_not_there() -> None:
    rng, level = np.random.default_rng(0), OnlineLevels().level(1, ())
    found = [attack(rng, 32, False, lambda _: level, lambda *_: None) for _ in range(5)]
    assert min(found) > 20
