"""Rates of false verdicts: p-values at the boundary, and questions that follow the answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interp.core.statistics import mean_above_p
from interp.profiles import verdict
from interp.profiles.claim_fit import REFITS
from interp.profiles.ledger import QuestionLedger
from interp.profiles.online_levels import OnlineLevels
from interp.profiles.verdict import HOLDS, IN_PART, SHARES
from interp.profiles.verdict_numbers import VerdictNumbers


def _few_bad(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Return shares of which one in six is 0, and the others are .6."""
    return np.where(rng.random(size) < 1 / 6, 0.0, 0.6)


SHAPES: dict[str, Callable] = {
    "even": lambda rng, size: rng.random(size),
    "all or nothing": lambda rng, size: (rng.random(size) < 0.5).astype(float),
    "few bad": _few_bad,
    "skewed": lambda rng, size: rng.beta(2, 0.5, size) * 0.625,
}
"""Shares of documents, whose mean is .5."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [16, 64])
def test_p_values_at_the_boundary(n: int, shape: str) -> None:
    """The null is rejected no more often than a level says, whatever the shares look like."""
    rng, draws = np.random.default_rng(n), 4000
    shares = SHAPES[shape](rng, (draws, n))
    assert shares.mean() == pytest.approx(0.5, abs=0.01)
    for given, least in ((shares, 0.5), (1 - shares, 0.5)):
        p = np.array([mean_above_p(x, least) for x in given])
        for level in (0.05, 0.005, 0.001):
            error = np.sqrt(level * (1 - level) / draws)
            assert np.mean(p <= level) <= level + 3 * error, level


def test_p_values_tell_a_larger_mean() -> None:
    rng = np.random.default_rng(0)
    shares = rng.normal(0.8, 0.2, (400, 64)).clip(0, 1)
    assert np.mean([mean_above_p(x, 0.5) < 2.7e-4 for x in shares]) > 0.95


def test_intervals_of_verdicts_hold_the_mean_although_the_fit_moves_it() -> None:
    """Of 300 questions, each with a fit that is off by .03 or so; without refits many miss."""
    rng, n = np.random.default_rng(0), 64
    inside = {"alone": 0, "without refits": 0}
    for seed in range(300):
        off = 0.03 * rng.normal(size=1 + REFITS)
        shares = rng.beta(4, 6, (n, 1)) + off[:1] + np.r_[0, off[1:]]
        nats = {"even": np.ones(n), "alone": 1 - shares[:, 0]}
        numbers = VerdictNumbers(n, seed, [], [])
        numbers.mean_share("alone", nats, "even", "alone", {"alone": 1 - shares[:, 1:]})
        numbers.ratio("without refits", shares[:, 0], np.ones(n))
        for row in numbers.rows:
            inside[row["number"]] += row["low"] <= 0.4 <= row["high"]
    assert 0.92 * 300 <= inside["alone"] <= 0.98 * 300, inside
    assert inside["without refits"] < 0.8 * 300, inside


class _Levels:
    """Levels of questions of which none finds anything, without a file."""

    def __init__(self) -> None:
        self.asked = dict.fromkeys(SHARES, 0)

    def level(self, word: str) -> float:
        self.asked[word] += 1
        return OnlineLevels().level(self.asked[word], ())


def attack(
    rng: np.random.Generator,
    n: int,
    fresh: bool,
    level: Callable,
    told: Callable,
    n_questions: int = 200,
) -> int:
    """Ask questions about unions of predicates that mean nothing, and keep what scores best.

    What such a predicate seems to explain is noise. Without fresh documents it is the same noise in
    every question, so that what is kept adds up. Returns how often something was found.
    """
    kept = np.zeros(n)
    best, found = 0.0, 0
    fixed = rng.lognormal(0, 0.5, n)
    for number in range(n_questions):
        under = rng.lognormal(0, 0.5, n) if fresh else fixed
        new = rng.normal(0, 0.1, n) if fresh else kept + rng.normal(0, 0.1, n)
        nats = {"position": under, "with_position": under * (1 - new)}
        nats["random_keys"] = under
        tested = verdict.Tested.of(nats, "position", "with_position", ("random_keys",))
        word = tested.word({word: level(word) for word in SHARES})
        found += word in (HOLDS, IN_PART)
        told(number, tested, word)
        if tested.share > best:
            best, kept = tested.share, new
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


def test_1000_questions_find_nothing_at_the_levels_of_a_ledger() -> None:
    """In 20 attacks of 1,000 questions; on the same documents almost every question finds it."""
    rng, level = np.random.default_rng(1), OnlineLevels().level(1, ())
    found = [attack(rng, 32, True, _Levels().level, lambda *_: None, 1000) for _ in range(20)]
    assert sum(map(bool, found)) <= 1, found
    assert attack(rng, 32, False, lambda _: level, lambda *_: None, 1000) > 900
