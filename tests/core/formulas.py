"""What tests of formulas share: values, the formulas of errors, and which functions they hold."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import statistics as stdlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

HELD: set[str] = set()
"""Functions that a test of a formula holds."""
RNG = np.random.default_rng(7)
_START = RNG.bit_generator.state
X = RNG.normal(1, 2, (3, 11)).round(3)
"""Three scores on eleven prompts."""
LABELS = list("aabbbcddeef")
"""Clusters of the prompts, of unequal sizes."""


def holds(*names: str) -> Callable[[Any], Any]:
    """Say which functions a test holds."""
    HELD.update(names)

    def held(test: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(test)
        def seeded() -> None:
            RNG.bit_generator.state = _START  # whatever ran before
            test()

        return seeded

    return held


def sem(x: Any) -> float:
    """Standard error of a mean, from the standard library."""
    return stdlib.stdev(map(float, x)) / math.sqrt(len(x))


def jackknife(estimate: Callable[[list[int]], float], groups: list[Any]) -> float:
    """Standard error of an estimate from trials, leaving out one group at a time."""
    names = list(dict.fromkeys(groups))
    left = [estimate([i for i, g in enumerate(groups) if g != name]) for name in names]
    middle = sum(left) / len(left)
    return math.sqrt((len(left) - 1) / len(left) * sum((x - middle) ** 2 for x in left))


def by_steps(p: Any) -> list[float]:
    """Holm's correction as it is defined: the largest step so far, at most 1."""
    order = np.argsort(p)
    steps = [min(1.0, (len(p) - k) * p[i]) for k, i in enumerate(order)]
    out = [0.0] * len(p)
    for k, i in enumerate(order):
        out[i] = max(steps[: k + 1])
    return out


def not_held(module: ModuleType) -> set[str]:
    """Functions and methods of a module, without those that construct, that no test holds."""
    tree = ast.parse(inspect.getsource(module))
    within = [tree, *(x for x in tree.body if isinstance(x, ast.ClassDef))]
    found = {x.name for part in within for x in part.body if isinstance(x, ast.FunctionDef)}
    return found - {"__init__", "of_rows"} - HELD
