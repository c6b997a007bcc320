"""Masked heads (Li et al. 2022, MaiT, arXiv:2207.02866): some heads see neighbouring patches only.

Positions are patches of a grid of width 4; even heads see the patches at most one step away.
"""

from __future__ import annotations

import torch

from interp.planted.variants.rule import Chosen, Projected, Rule, SeenBlock

WIDTH = 4


class MaskedHeadsRule(Rule):
    """Local heads beside global ones, in two dimensions; no order of positions."""

    causal = False

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep near patches for even heads, and all for odd ones."""
        down = (rows[:, None] // WIDTH - given.every // WIDTH).abs()
        across = (rows[:, None] % WIDTH - given.every % WIDTH).abs()
        near = torch.maximum(down, across) <= 1
        local = torch.arange(self.shape.n_heads, device=rows.device) % 2 == 0
        return near | ~local[:, None, None]
