"""Softmax off by one (Miller 2023, Attention is off by one): exp(s_ij) / (1 + sum_l exp(s_il))."""

from __future__ import annotations

import torch

from interp.planted.variants.rule import MapBlock, Rule, SeenBlock, masked_softmax


class OffByOneRule(Rule):
    """A softmax over the keys and one more key with score and value 0."""

    row_sum = "at most 1"

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Multiply the softmax by the share that the keys have beside the 1."""
        total = scores.masked_fill(~seen, -torch.inf).logsumexp(-1, keepdim=True)
        return masked_softmax(scores, seen) * torch.sigmoid(total)
