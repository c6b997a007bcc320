"""ALiBi (Press et al. 2021, arXiv:2108.12409): softmax_j(s_ij - m_h (i - j)).

The slope m_h of head h in 1..H is 2^(-8 h / H).
"""

from __future__ import annotations

import torch

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule


class AlibiRule(Rule):
    """Scores fall with the distance, at a fixed slope per head."""

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Subtract the slope times the distance."""
        heads = torch.arange(1, self.shape.n_heads + 1, device=rows.device)
        slope = 2.0 ** (-8 * heads / self.shape.n_heads)
        gap = rows[:, None] - given.every
        return super().scores(given, rows) - slope[:, None, None] * gap
