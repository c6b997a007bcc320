"""Quasi attention (Li et al. 2024, Comateformer, arXiv:2412.07220): tanh(s_ij) gated by nearness.

M_ij = tanh(s_ij) sigmoid(-|q_i - k_j|_1 / sqrt(d)), with the sum of absolute differences.
"""

from __future__ import annotations

import torch

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule


class QuasiRule(Rule):
    """Adds, deletes or ignores a token by the sign and the size of two affinities."""

    signed = True
    row_sum = "any"

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Gate signed affinities by the distance."""
        apart = torch.cdist(given.q[:, :, rows], given.k, p=1) * given.q.shape[-1] ** -0.5
        return self.scores(given, rows).tanh() * torch.sigmoid(-apart) * self.seen(given, rows)
