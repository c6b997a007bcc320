"""Memory slots (Sukhbaatar et al. 2019, arXiv:1907.01470): keys and values of no token.

z = M v + the slots' weights times their values, which belong to no token.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Chosen, Heads, MapBlock, Projected, Rule, RuleShape


class MemorySlotsRule(Rule):
    """Persistent memory: a softmax over eight slots and the tokens."""

    row_sum = "at most 1"
    slots = 8

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
