"""Outputs that no token wrote: memory, a learned bias, relations of pairs."""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import (
    Chosen,
    Heads,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    Stream,
)


class KeyValueBiasAttention(Rule):
    """Bias of keys and values (Sun et al. 2024, arXiv:2402.17762): a learned key k', value v'.

    z = M v + m v', where m is the weight of k' in the softmax; v' belongs to no token. A
    learned sink that has a value.
    """

    row_sum = "at most 1"
    slots = 1

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (shape.n_heads, self.slots, shape.d_head)
        self.slot_keys, self.slot_values = (nn.Parameter(torch.randn(size)) for _ in range(2))

    def _both(self, given: Projected, rows: Chosen) -> tuple[MapBlock, MapBlock]:
        """Return the weights of slots and of tokens."""
        own = given.q[:, :, rows] @ self.slot_keys.mT * given.q.shape[-1] ** -0.5
        tokens = self.scores(given, rows).masked_fill(~self.seen(given, rows), -torch.inf)
        both = torch.cat([own, tokens], -1).softmax(-1)
        return both[..., : self.slots], both[..., self.slots :]

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return the weights of tokens."""
        return self._both(given, rows)[1]

    def rest(self, given: Projected) -> Heads:
        """Return what the slots write."""
        return self._both(given, given.every)[0] @ self.slot_values

    def mix(self, given: Projected) -> Heads:
        """Attend to slots and tokens together."""
        own, tokens = self._both(given, given.every)
        values = self.slot_values.expand(len(given.v), -1, -1, -1)
        return torch.cat([own, tokens], -1) @ torch.cat([values, given.v], 2)


class MemorySlotsAttention(KeyValueBiasAttention):
    """Memory slots (Sukhbaatar et al. 2019, arXiv:1907.01470): keys and values of no token.

    z = M v + the slots' weights times their values, which belong to no token. Persistent
    memory: a softmax over eight slots and the tokens.
    """

    slots = 8


class RelationalAttention(Rule):
    """Relational (Altabaa and Lafferty 2024, arXiv:2405.16727): z_i = sum_j M_ij (s_j + U r_ij).

    s_j is a symbol of the position, r_ij are products of other projections: no feature of a
    token is moved. z = M s + the part of the relations, which belongs to pairs. A head reads
    where a related token stands and how it is related, not what it is.
    """

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
