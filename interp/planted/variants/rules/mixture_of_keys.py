"""Mixture of keys (Nguyen et al. 2021, MGK, arXiv:2110.08678): two Gaussian keys per position.

M[i, j] proportional to sum_r p_r exp(-|q_i - k_jr|^2 / (2 sqrt(d))).
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape, Stream


class MixtureOfKeysRule(Rule):
    """A position can be found in two ways."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.second_key = nn.Linear(shape.d_model, self.d_out, bias=False)
        self.share = nn.Parameter(torch.zeros(shape.n_heads, 2))

    def prepare(self, x: Stream) -> Projected:
        """Add the second keys."""
        given = super().prepare(x)
        given.more["second"] = self.split(self.second_key(x))
        return given

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return logs of the mixture's densities."""
        q, scale = given.q[:, :, rows], 0.5 * given.q.shape[-1] ** -0.5
        log_share = self.share.log_softmax(-1)[..., None, None]
        near = [
            log_share[:, r] - scale * (q[:, :, :, None] - k[:, :, None]).square().sum(-1)
            for r, k in enumerate((given.k, given.more["second"]))
        ]
        return torch.logaddexp(*near)
