"""Differential (Ye et al. 2024, arXiv:2410.05258): softmax(q1 k1) - lambda softmax(q2 k2).

lambda = exp(a . b) - exp(c . d) + l0 with l0 = 0.8 - 0.6 exp(-0.3 layer). A norm of each head and
the factor 1 - l0 follow. Queries and keys are two halves of a head's width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from interp.planted.variants.rule import (
    Chosen,
    Heads,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    head_norm,
    masked_softmax,
)


class DifferentialRule(Rule):
    """The attention that both softmaxes give cancels."""

    signed = True
    row_sum = "constant"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.vectors = nn.Parameter(0.1 * torch.randn(4, shape.d_head // 2))
        self.first = 0.8 - 0.6 * math.exp(-0.3 * shape.layer)

    @property
    def factor(self) -> Tensor:
        """Lambda."""
        a, b, c, d = self.vectors
        return (a @ b).exp() - (c @ d).exp() + self.first

    def parts(self, given: Projected) -> dict[str, Callable[[Chosen], MapBlock]]:
        """Return both softmaxes."""
        halves = zip(given.q.chunk(2, -1), given.k.chunk(2, -1), strict=True)

        def softmaxes(q: Heads, k: Heads, rows: Chosen) -> MapBlock:
            scores = q[:, :, rows] @ k.mT * q.shape[-1] ** -0.5
            return masked_softmax(scores, self.seen(given, rows))

        first, second = (partial(softmaxes, q, k) for q, k in halves)
        return {"first": first, "second": second}

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Subtract the second softmax."""
        both = self.parts(given)
        return both["first"](rows) - self.factor * both["second"](rows)

    def after(self, z: Heads, given: Projected) -> Tensor:
        """Normalise each head."""
        return super().after((1 - self.first) * head_norm(z), given)
