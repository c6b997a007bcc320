"""Relational heads (Altabaa and Lafferty 2024, arXiv:2405.16727): z_i = sum_j M_ij (s_j + U r_ij).

s_j is a symbol of the position, r_ij are products of other projections: no feature of a token is
moved. z = M s + the part of the relations, which belongs to pairs.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Heads, Projected, Rule, RuleShape, Stream


class RelationalRule(Rule):
    """A head reads where a related token stands and how it is related, not what it is."""

    relations = 4

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        del self.value
        self.symbols = nn.Parameter(torch.randn(shape.n_heads, shape.length, shape.d_head))
        size = (2, shape.n_heads, shape.d_head, self.relations)
        self.related = nn.Parameter(torch.randn(size) * shape.d_head**-0.5)
        self.written = nn.Parameter(torch.randn(shape.n_heads, self.relations, shape.d_head))

    def prepare(self, x: Stream) -> Projected:
        """Return symbols as values; add both sides of the relations."""
        q, k = self.split(self.query(x)), self.split(self.key(x))
        symbols = self.symbols[:, : x.shape[1]].expand(len(x), -1, -1, -1)
        given = Projected(x, q, k, symbols)
        given.more["left"], given.more["right"] = q @ self.related[0], k @ self.related[1]
        return given

    def rest(self, given: Projected) -> Heads:
        """Return what the relations write: sum_j M_ij l_i r_j is l_i times the mean of r_j."""
        mean = self.rows(given, given.every) @ given.more["right"]
        return (given.more["left"] * mean) @ self.written

    def mix(self, given: Projected) -> Heads:
        """Add symbols and relations pair by pair."""
        weights = self.rows(given, given.every)
        pairs = given.more["left"][:, :, :, None] * given.more["right"][:, :, None]
        written = pairs @ self.written[:, None] + given.v[:, :, None]
        return (weights[..., None] * written).sum(3)
