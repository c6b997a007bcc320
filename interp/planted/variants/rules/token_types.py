"""Token types (Deng et al. 2025, NAtS, arXiv:2502.13251): global, local and window tokens.

A global token is seen by all later rows, a local one until the next global token, and a window
token by the next 3 rows. The type is the largest of three logits of the token.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Chosen, Projected, Rule, RuleShape, SeenBlock, Stream

WIDTH = 4


class TokenTypesRule(Rule):
    """A token decides how long it stays visible."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.types = nn.Parameter(torch.randn(3, shape.d_model), requires_grad=False)

    def prepare(self, x: Stream) -> Projected:
        """Add the type of each token: 0 global, 1 local, 2 window."""
        given = super().prepare(x)
        given.more["type"] = (x @ self.types.mT).argmax(-1)
        return given

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep tokens that are still visible, and the row itself."""
        kind = given.more["type"][:, None, None]
        count = (given.more["type"] == 0).cumsum(-1)
        same = (count[:, rows, None] == count[:, None, :])[:, None]
        gap = rows[:, None] - given.every
        lasting = (kind == 0) | ((kind == 1) & same) | ((kind == 2) & (gap < WIDTH))
        return (lasting | (gap == 0)) & (gap >= 0)
