"""Sparsemax (Martins and Astudillo 2016, arXiv:1602.02068): M[i, j] = max(s_ij - tau_i, 0).

tau_i is such that the row sums to 1: the projection of the scores onto the simplex.
"""

from __future__ import annotations

import torch

from interp.planted.variants.rule import MapBlock, Rule, SeenBlock

HIDDEN = -1e4  # score of a key that is not visible


class SparsemaxRule(Rule):
    """Exact zeros where scores are below a threshold."""

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Project rows onto the simplex: tau from the sorted scores of the support."""
        scores = scores.masked_fill(~seen, HIDDEN)
        ordered = scores.sort(-1, descending=True).values
        number = torch.arange(1, scores.shape[-1] + 1, device=scores.device)
        total = ordered.cumsum(-1)
        size = (1 + number * ordered > total).sum(-1, keepdim=True)
        tau = (total.gather(-1, size - 1) - 1) / size
        return (scores - tau).clamp_min(0) * seen
