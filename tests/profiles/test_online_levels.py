"""Levels of LORD++: by their formula, and the errors and discoveries that they give."""

from __future__ import annotations

import math

import numpy as np
import pytest
from together import over

from interp.core.errors import OptionError
from interp.profiles.online_levels import OnlineLevels

GAMMA = [
    0.07720838 * math.log(max(j, 2)) / (j * math.exp(math.sqrt(math.log(j)))) for j in range(1, 301)
]


def test_levels_are_those_of_the_formula() -> None:
    alpha, found = 0.1, (3, 4, 9)
    expected = []
    for t in range(1, 16):
        after = [GAMMA[t - tau - 1] if t > tau else 0.0 for tau in found]
        expected.append(GAMMA[t - 1] * 0.01 + 0.09 * after[0] + 0.1 * (after[1] + after[2]))
    levels = OnlineLevels(alpha)
    assert [levels.level(t, found) for t in range(1, 16)] == pytest.approx(expected, rel=1e-12)
    assert levels.level(5, reversed(found)) == pytest.approx(expected[4], rel=1e-12)
    # by hand: log 2 times the constant, of the tenth of .05 that is spent without a discovery
    assert OnlineLevels().level(1, ()) == pytest.approx(0.005 * 0.0535168, rel=1e-5)


def test_no_more_is_spent_than_alpha() -> None:
    levels = OnlineLevels(0.1)  # without a discovery a tenth of alpha times the terms
    terms = sum(levels.level(t, ()) for t in range(1, 10_001)) / 0.01
    u = math.log(10_000.5)  # beyond it, the integral of log x / (x exp(sqrt(log x)))
    r = math.sqrt(u)
    rest = 0.07720838 * 2 * math.exp(-r) * (r**3 + 3 * r**2 + 6 * r + 6)
    assert terms + rest == pytest.approx(0.9763, abs=1e-3)
    assert terms + rest < 1


@over("alpha", [0.0, 1.0, -0.1, math.nan])
def test_a_level_that_is_none_is_refused(alpha: float) -> None:
    with pytest.raises(OptionError, match=r"give one between 0 and 1"):
        OnlineLevels(alpha)


def test_tests_count_from_one() -> None:
    with pytest.raises(OptionError, match=r"the first test is number 1"):
        OnlineLevels().level(0, ())


def discoveries_of(p_values: np.ndarray, alpha: float) -> list[int]:
    levels, found = OnlineLevels(alpha), []
    for t, p in enumerate(p_values.tolist(), 1):
        if p <= levels.level(t, found):
            found.append(t)
    return found


def test_false_discoveries_are_as_rare_as_promised() -> None:
    draws = np.random.default_rng(0)
    alpha, n = 0.2, 2_000  # at .05 the share would be too small to be told from nothing
    null = np.mean([bool(discoveries_of(draws.uniform(size=200), alpha)) for _ in range(n)])
    assert 0.005 < null <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / n)
    assert np.mean([bool(discoveries_of(draws.uniform(size=200), 0.05)) for _ in range(n)]) < 0.05

    shares, power = [], []
    for _ in range(300):
        true = draws.uniform(size=200) < 0.4
        p_values = np.where(true, draws.beta(0.02, 8, size=200), draws.uniform(size=200))
        found = np.array(discoveries_of(p_values, alpha), int) - 1
        shares.append(np.mean(~true[found]) if len(found) else 0.0)
        power.append(true[found].sum() / true.sum())
    assert 0.02 < np.mean(shares) <= alpha + 3 * np.std(shares) / math.sqrt(300)
    assert np.mean(power) > 0.6  # the levels rise with discoveries; Bonferroni's do not
