"""Hash collisions (Zeng et al. 2021, YOSO, arXiv:2111.09714): (1 - arccos(q . k) / pi)^8.

The chance that 8 random hyperplanes do not part q and k, both of norm 1; a norm of z follows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from interp.planted.variants.rule import (
    Chosen,
    Heads,
    MapBlock,
    Projected,
    Rule,
    Stream,
    head_norm,
)

PLANES = 8


class HashCollisionsRule(Rule):
    """The expectation of attention that samples keys by hashing."""

    row_sum = "any"

    def prepare(self, x: Stream) -> Projected:
        """Normalise queries and keys."""
        given = super().prepare(x)
        given.q, given.k = (F.normalize(t, dim=-1) for t in (given.q, given.k))
        return given

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return the chances of visible keys."""
        cosine = (given.q[:, :, rows] @ given.k.mT).clamp(-1 + 1e-6, 1 - 1e-6)
        return (1 - torch.arccos(cosine) / math.pi) ** PLANES * self.seen(given, rows)

    def after(self, z: Heads, given: Projected) -> Tensor:
        """Normalise each head's output."""
        return super().after(head_norm(z), given)
