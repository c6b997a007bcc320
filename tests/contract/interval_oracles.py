"""What the formulas of intervals share: a registry, values, and intervals of textbooks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

ORACLES: dict[str, Callable[[], None]] = {}
RNG = np.random.default_rng(11)
_START = RNG.bit_generator.state
X = RNG.normal(1, 2, (3, 9)).round(3)
"""Three rows of values on nine prompts."""
LABELS = tuple("aabbbccde")
WHOLE = X[2] ** 2 + 1


def oracle(*names: str) -> Callable[[Any], Any]:
    """Register a check as that of some functions, named by file and qualified name."""

    def register(check: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(check)
        def checked() -> None:
            RNG.bit_generator.state = _START  # whatever ran before
            check()

        again = hasattr(check, "__wrapped__")  # a second line of names
        ORACLES.update(dict.fromkeys(names, check if again else checked))
        return check if again else checked

    return register


def t_interval(x: Any, labels: Any = None, level: float = 0.95) -> tuple[float, float]:
    """The t interval of a mean, over clusters by leaving each out in turn."""
    groups = list(range(len(x))) if labels is None else list(labels)
    names = list(dict.fromkeys(groups))
    left = np.array([np.mean([v for v, g in zip(x, groups, strict=True) if g != n]) for n in names])
    k = len(names)
    sem = math.sqrt((k - 1) / k * ((left - left.mean()) ** 2).sum())
    half = stats.t.ppf((1 + level) / 2, k - 1) * sem
    return float(np.mean(x) - half), float(np.mean(x) + half)


def wilson(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share."""
    z, p = stats.norm.ppf((1 + level) / 2), hits / n
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return middle - half, middle + half
