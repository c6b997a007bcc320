"""Answers of models whose weights are moved by a relative 1e-6, and what of them may differ."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

SEEDS = range(5)
NUMBER = re.compile(
    r"(?<![\w.])(?:± |[-+])?(?:\d{1,3}(?:,\d{3})+|\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?(?!\w)"
)


def unit(number: str) -> float:
    """The last digit that is printed."""
    digits, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))


def alike(first: str, second: str) -> bool:
    """Whether two printed numbers differ by no more than their digits, or by rounding."""
    if {*first, *second} <= set("0123456789,"):
        return first == second  # a count
    share = 0.1 if "±" in first else 0.02  # the error of a mean moves more than the mean
    first, second = (number.replace(",", "").removeprefix("± ") for number in (first, second))
    x, y = float(first), float(second)
    near = max(unit(first), unit(second), share * max(abs(x), abs(y)), 2e-4)
    return abs(x - y) <= near * 1.001


def changes(before: str, after: str) -> list[tuple[str, str]]:
    """Lines that say something else."""
    found = []
    for x, y in itertools.zip_longest(before.splitlines(), after.splitlines(), fillvalue=""):
        words = [re.sub(r"[\s\u2500-]+", " ", NUMBER.sub("#", line)).strip() for line in (x, y)]
        numbers = zip(NUMBER.findall(x), NUMBER.findall(y), strict=False)
        if words[0] != words[1] or not all(alike(*pair) for pair in numbers):
            found.append((x, y))
    return found


def stays(moved: Any, answer: Callable[[], str], seeds: range = SEEDS) -> None:
    with moved(None):
        before = answer()
    for seed in seeds:
        with moved(seed):
            assert not changes(before, answer()), f"seed {seed}"
