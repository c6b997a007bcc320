"""Nested attention (Han et al. 2021, Transformer in Transformer, arXiv:2103.00112).

The 4 slices of a token attend to each other, are added to it, and softmax attention follows.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Projected, Rule, RuleShape, Stream


class NestedRule(Rule):
    """An inner attention inside each token comes before the outer one between tokens."""

    slices = 4

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        width = shape.d_model // self.slices
        self.inner = nn.Parameter(torch.randn(3, width, width) * width**-0.5)

    def prepare(self, x: Stream) -> Projected:
        """Mix slices within each token first."""
        parts = x.unflatten(-1, (self.slices, -1))
        q, k, v = (parts @ m for m in self.inner)
        mixed = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v
        given = super().prepare(x + mixed.flatten(-2))
        given.x = x
        return given
