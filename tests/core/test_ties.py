"""Ties: numbers that differ by rounding are equal, and keep the order of their names."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp.core.ties import FLOOR, RELATIVE, either, largest, ordered, reaches, snapped, tied_with

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@given(NUMBERS)
def test_no_tie_is_wider_than_the_tolerance(values: list[float]) -> None:
    x, found = np.array(values), snapped(values)
    assert (found >= x).all()
    near = RELATIVE * np.abs(found) + FLOOR * np.abs(x).max()
    assert (found - x <= near * (1 + 1e-12)).all()
    order = ordered(values)
    assert sorted(order) == list(range(len(values)))
    assert (np.diff(found[order]) <= 0).all()
    low = ordered(values, lowest=True)
    assert (np.diff(-snapped(-x)[low]) >= 0).all()


def test_rounding_turns_no_order_and_every_larger_difference_does() -> None:
    rng = np.random.default_rng(0)
    values = np.array([3.0, 10.0, 10.0, 3.0, 0.0, 0.0, 1e-3, -10.0])
    for _ in range(20):
        noise = 1 + 2e-6 * rng.uniform(-1, 1, 8)
        moved = values * noise + 2e-6 * rng.uniform(-1, 1, 8)
        assert ordered(moved) == [1, 2, 0, 3, 6, 4, 5, 7]
        assert ordered(moved, lowest=True) == [7, 4, 5, 6, 0, 3, 1, 2]
        assert (largest(moved), tied_with(moved, 1)) == (1, [1, 2])
    assert ordered([1.0, 1.001]) == [1, 0]
    assert ordered([1e-4, 2e-4]) == [1, 0]  # beside numbers of their own size
    assert ordered([1e-4, 2e-4], scale=100) == [0, 1]  # a difference of numbers of size 100
    chain = 1 + 1e-5 * np.arange(50)
    assert ordered(chain)[0] > 40  # no chain of close numbers is one tie


def test_what_is_not_a_number_comes_last() -> None:
    assert ordered([math.nan, 1.0, math.inf, -math.inf, 2.0]) == [2, 4, 1, 3, 0]
    assert ordered([]) == []
    assert np.isnan(snapped([math.nan, 1.0])[0])


@pytest.mark.parametrize(("value", "held"), [(0.8, True), (0.8 - 1e-6, True), (0.799, False)])
def test_a_bound_is_reached_up_to_rounding(value: float, held: bool) -> None:
    assert bool(reaches(value, 0.8)) == held


def test_a_tie_is_said() -> None:
    assert either(["L1H0"]) == "L1H0"
    assert either(["L1H0", "L2H0"]) == "L1H0 or L2H0"
    assert either(["a", "b", "c"]) == "a, b or c"
    assert either(["a", "b", "c", "d", "e"]) == "a or 4 others"
