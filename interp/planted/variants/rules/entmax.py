"""Entmax 1.5 (Peters et al. 2019, arXiv:1905.05702): M[i, j] = max(s_ij / 2 - tau_i, 0)^2.

tau_i is such that the row sums to 1.
"""

from __future__ import annotations

import torch

from interp.planted.variants.rule import MapBlock, Rule, SeenBlock

HIDDEN = -1e3  # half score of a key that is not visible


class EntmaxRule(Rule):
    """Between softmax and sparsemax: exact zeros, and a smooth edge."""

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Solve the quadratic for tau on every prefix of the sorted scores; take the support's."""
        half = (scores / 2).masked_fill(~seen, -torch.inf)
        half = (half - half.amax(-1, keepdim=True)).masked_fill(~seen, HIDDEN)
        ordered = half.sort(-1, descending=True).values
        number = torch.arange(1, scores.shape[-1] + 1, device=scores.device)
        mean = ordered.cumsum(-1) / number
        spread = ordered.square().cumsum(-1) - number * mean.square()
        tau = mean - ((1 - spread) / number).clamp_min(0).sqrt()
        size = (tau <= ordered).sum(-1, keepdim=True)
        return (half - tau.gather(-1, size - 1)).clamp_min(0).square() * seen
