"""Exponential and norm (Mongaras and Larson 2025, arXiv:2507.23632): exp(s_ij), then a norm of z.

The sum that divides softmax is replaced by the norm of each head's output; s is of unit q and k.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from interp.planted.variants.rule import (
    Heads,
    MapBlock,
    Projected,
    Rule,
    SeenBlock,
    Stream,
    head_norm,
)


class ExponentialNormRule(Rule):
    """Softmax as a recurrence: its numerator, with a norm in place of its denominator."""

    row_sum = "any"

    def prepare(self, x: Stream) -> Projected:
        """Normalise queries and keys, so that the exponential stays bounded."""
        given = super().prepare(x)
        given.q, given.k = (F.normalize(t, dim=-1) for t in (given.q, given.k))
        given.q = given.q * given.q.shape[-1] ** 0.5
        return given

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Return the exponentials of visible scores."""
        return scores.exp() * seen

    def after(self, z: Heads, given: Projected) -> Tensor:
        """Normalise each head's output."""
        return super().after(head_norm(z), given)
