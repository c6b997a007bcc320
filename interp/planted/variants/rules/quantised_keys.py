"""Quantised keys (Lingle 2023, Transformer-VQ, arXiv:2309.16354): each key is its nearest code.

M[i, j] = softmax_j(q_i . c(k_j)) with 8 learned codes per head; gradients pass straight through.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Projected, Rule, RuleShape, Stream


class QuantisedKeysRule(Rule):
    """Keys of one code have equal weight."""

    n_codes = 8

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.codes = nn.Parameter(torch.randn(shape.n_heads, self.n_codes, shape.d_head))

    def prepare(self, x: Stream) -> Projected:
        """Replace keys by codes."""
        given = super().prepare(x)
        nearest = (given.k[..., None, :] - self.codes[:, None]).square().sum(-1).argmin(-1)
        heads = torch.arange(self.shape.n_heads, device=x.device)[:, None]
        code = self.codes[heads, nearest]
        given.k = code + (given.k - given.k.detach())
        return given
