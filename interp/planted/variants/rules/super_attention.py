"""Super attention (Hosseini and Hosseini 2024, arXiv:2403.01643): M = softmax(q x) A.

Keys and values are slices of the input; A is a learned lower triangular map over positions.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.core.errors import OptionError
from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule, RuleShape, Stream


class SuperAttentionRule(Rule):
    """No projections to keys and values; positions are mixed before they are attended to."""

    signed = True
    row_sum = "any"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        if self.d_out != shape.d_model:
            raise OptionError(
                f"super_attention: heads are slices of the input, so {shape.n_heads} heads of width"
                f" {shape.d_head} need d_model {self.d_out}, not {shape.d_model}"
            )
        del self.key, self.value
        drawn = 0.3 * torch.randn(shape.length, shape.length) * shape.length**-0.5
        self.mixing = nn.Parameter(torch.eye(shape.length) + drawn)

    def prepare(self, x: Stream) -> Projected:
        """Return slices of the input as keys and values."""
        return Projected(x, self.split(self.query(x)), self.split(x), self.split(x))

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Attend to mixed positions."""
        length = len(given.every)
        return super().rows(given, rows) @ self.mixing[:length, :length].tril()
