"""Seeded choices that count their own probability."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import log
from typing import Any


class Choices:
    """Random choices from a seed, the same in every version of Python.

    Only `random.Random.random` is used, whose sequence Python keeps between versions.

    Attributes:
        nats: minus the log-probability of all choices made so far.
    """

    def __init__(self, seed: int):
        self._random = random.Random(seed)
        self.nats = 0.0

    def below(self, n: int) -> int:
        """Return a number from 0 to n - 1."""
        self.nats += log(n)
        return int(self._random.random() * n)

    def pick(self, options: Sequence[Any]) -> Any:
        """Return one of the options."""
        return options[self.below(len(options))]

    def chance(self, share: float) -> bool:
        """Return True in this share of cases."""
        yes = self._random.random() < share
        self.nats -= log(share if yes else 1 - share)
        return yes

    def sample(self, options: Sequence[Any], n: int) -> list[Any]:
        """Return n different options in random order."""
        left = list(options)
        return [left.pop(self.below(len(left))) for _ in range(n)]
