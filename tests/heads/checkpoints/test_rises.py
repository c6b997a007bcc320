"""Half of a rise: known for curves made by a formula; the order of runs is counted exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from interp.core.errors import OptionError
from interp.core.intervals import share_interval
from interp.heads.checkpoints.rises import half_rise, rise_order


def test_the_middle_of_a_logistic_curve_is_found() -> None:
    steps = np.arange(0, 1001, 20)
    for middle in (310.0, 500.0, 655.0):
        curve = 0.2 + 0.6 / (1 + np.exp(-(steps - middle) / 15))
        assert half_rise(steps.tolist(), curve) == pytest.approx(middle, abs=1.5)


def test_steps_are_interpolated_between_uneven_checkpoints() -> None:
    assert half_rise([0, 10, 50], np.array([0.0, 0.2, 1.0])) == pytest.approx(10 + 40 * 3 / 8)
    # from chance: what rises to chance only has not risen
    assert half_rise([0, 1, 2], np.array([0.0, 0.25, 0.75]), base=0.25) == pytest.approx(1.5)
    assert math.isnan(half_rise([0, 1, 2], np.array([0.0, 0.2, 0.25]), base=0.25))
    assert half_rise([5, 6], np.array([0.9, 1.0]), base=0.25) == 5
    # the first crossing counts, and only the ends set the level
    assert half_rise([0, 1, 2, 3], np.array([0.0, 0.8, 0.1, 1.0])) == pytest.approx(0.625)


def test_curves_that_do_not_rise_have_no_step() -> None:
    flat, down, little = np.full(3, 0.5), np.array([1.0, 0.5, 0.0]), np.array([0.0, 0.02, 0.05])
    for curve in (flat, down):
        assert math.isnan(half_rise([0, 1, 2], curve))
    assert math.isnan(half_rise([0, 1, 2], little, least=0.1))
    assert half_rise([0, 1, 2], little) > 0
    for steps in ([0], [0, 0, 1], [0, 1]):
        with pytest.raises(OptionError, match="rising steps"):
            half_rise(steps, np.zeros(3))


def test_the_order_counts_runs_in_which_both_rose() -> None:
    times = {"a": [1.0, 2.0, 5.0, 4.0], "b": [2.0, 3.0, 4.0, math.nan], "c": [9.0, 9.0, 9.0, 4.0]}
    rows = rise_order(times).set_index(["first", "second"])
    assert rows.loc[("a", "b"), "share"] == pytest.approx(2 / 3)
    assert rows.loc[("a", "b"), "n"] == 3
    assert rows.loc[("a", "c"), "share"] == pytest.approx(3.5 / 4)  # a tie is a half
    low, high = share_interval(2, 3)
    assert rows.loc[("a", "b"), ["low", "high"]].tolist() == pytest.approx([low, high])
    assert (rows["null"] == 0.5).all()
    with pytest.raises(OptionError, match="every run"):
        rise_order({"a": [1.0], "b": []})


def test_runs_without_an_order_are_near_the_null() -> None:
    rng = np.random.default_rng(0)
    one = rise_order({"a": rng.random(400).tolist(), "b": rng.random(400).tolist()}).iloc[0]
    assert one["low"] < 0.5 < one["high"]
    assert one["high"] - one["low"] < 0.1
