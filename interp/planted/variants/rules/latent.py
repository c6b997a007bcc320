"""Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434): keys, values of one vector.

c = W x; k_h = U_h c, v_h = V_h c. The rotary part of the keys is left out.
"""

from __future__ import annotations

from torch import nn

from interp.planted.variants.rule import Projected, Rule, RuleShape, Stream


class LatentRule(Rule):
    """Keys and values of all heads come from one narrow projection."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        narrow = max(1, shape.d_model // 4)
        self.latent = nn.Linear(shape.d_model, narrow, bias=False)
        self.key, self.value = (nn.Linear(narrow, self.d_out, bias=False) for _ in "kv")

    def prepare(self, x: Stream) -> Projected:
        """Project down, and up again."""
        c = self.latent(x)
        q, k, v = self.query(x), self.key(c), self.value(c)
        return Projected(x, self.split(q), self.split(k), self.split(v))
