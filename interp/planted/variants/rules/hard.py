"""Hard attention (Xu et al. 2015, arXiv:1502.03044): all weight on the key of the largest score.

The gradient is that of the softmax (straight through).
"""

from __future__ import annotations

from torch.nn import functional as F

from interp.planted.variants.rule import MapBlock, Rule, SeenBlock, masked_softmax


class HardRule(Rule):
    """A row takes one token."""

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Return one-hot rows with the gradient of a softmax."""
        soft = masked_softmax(scores, seen)
        hard = F.one_hot(soft.argmax(-1), soft.shape[-1]).to(soft.dtype)
        return hard + (soft - soft.detach())
