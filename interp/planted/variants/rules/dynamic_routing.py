"""Dynamic routing (Yoon et al. 2018, arXiv:1808.07383): b_ij grows by v_j . tanh(z_i), 2 rounds.

M = softmax(b), b = 0 at first and z = M v: a row attends to what agrees with its own mean.
"""

from __future__ import annotations

import torch

from interp.planted.variants.rule import (
    Chosen,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    Stream,
    masked_softmax,
)


class DynamicRoutingRule(Rule):
    """No queries and no keys: agreement of values decides."""

    rounds = 2

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        del self.query, self.key

    def prepare(self, x: Stream) -> Projected:
        """Return values in all three places."""
        v = self.split(self.value(x))
        return Projected(x, v, v, v)

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Route a few rounds."""
        seen = self.seen(given, rows)
        logits = given.v.new_zeros(*given.v.shape[:2], len(rows), len(given.every))
        for _ in range(self.rounds):
            z = torch.tanh(masked_softmax(logits, seen) @ given.v)
            logits = logits + z @ given.v.mT
        return masked_softmax(logits, seen)
