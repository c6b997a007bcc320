"""Head embeddings (Xue and Aletras 2023, arXiv:2310.07911): one projection, a vector per head.

q_h = W_q x + e_h, k_h = W_k x + f_h, v_h = W_v x + g_h.
"""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import Projected, Rule, RuleShape, Stream


class HeadEmbeddingsRule(Rule):
    """Heads are one projection seen from different offsets."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.query, self.key, self.value = (
            nn.Linear(shape.d_model, shape.d_head, bias=False) for _ in "qkv"
        )
        self.offsets = nn.Parameter(torch.randn(3, shape.n_heads, 1, shape.d_head))

    def prepare(self, x: Stream) -> Projected:
        """Add each head's vectors."""
        parts = zip((self.query, self.key, self.value), self.offsets, strict=True)
        q, k, v = (self.split(part(x)) + offset for part, offset in parts)
        return Projected(x, q, k, v)
