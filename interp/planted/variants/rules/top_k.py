"""Top-k (Gupta et al. 2021, arXiv:2106.06899): softmax over the 3 largest scores of a row."""

from __future__ import annotations

import torch

from interp.planted.variants.rule import MapBlock, Rule, SeenBlock, among_largest, masked_softmax

KEPT = 3


class TopKRule(Rule):
    """All keys but a few have weight zero."""

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Hide scores below the smallest one that is kept."""
        scores = scores.masked_fill(~seen, -torch.inf)
        return masked_softmax(scores, seen & among_largest(scores, KEPT))
