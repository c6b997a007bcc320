"""Sink logit (gpt-oss, 2025): softmax with a learned logit per head, which is dropped."""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import MapBlock, Rule, RuleShape, SeenBlock, masked_softmax


class SinkLogitRule(Rule):
    """A learned amount of attention goes to no token."""

    row_sum = "at most 1"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.sink = nn.Parameter(torch.randn(shape.n_heads))

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Multiply the softmax by the share that the keys have beside the sink."""
        total = scores.masked_fill(~seen, -torch.inf).logsumexp(-1, keepdim=True)
        return masked_softmax(scores, seen) * torch.sigmoid(total - self.sink[:, None, None])
