"""Fibottention (Rahimian et al. 2024, arXiv:2406.19391): distances of a Fibonacci sequence.

Head h sees the distance 0 and those of row h + 1 of the Wythoff array: 1, 2, 3, 5 ..; 4, 7, 11 ..
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from interp.planted.variants.rule import Chosen, Projected, Rule, RuleShape, SeenBlock

GOLDEN = (1 + math.sqrt(5)) / 2


def wythoff(row: int, longest: int) -> list[int]:
    """Return the terms of a row of the Wythoff array, counted from 1, up to a number."""
    n = math.floor(row * GOLDEN)
    terms = [math.floor(n * GOLDEN), math.floor(n * GOLDEN**2)]
    while terms[-1] <= longest:
        terms.append(terms[-2] + terms[-1])
    return [t for t in terms if t <= longest]


class FibonacciRule(Rule):
    """Each head looks back at distances that no other head has."""

    allowed: Tensor

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        allowed = torch.zeros(shape.n_heads, shape.length, dtype=torch.bool)
        allowed[:, 0] = True
        for head in range(shape.n_heads):
            allowed[head, wythoff(head + 1, shape.length - 1)] = True
        self.register_buffer("allowed", allowed)

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep keys at the head's distances."""
        gap = rows[:, None] - given.every
        return self.allowed[:, gap.clamp_min(0)] & (gap >= 0)
