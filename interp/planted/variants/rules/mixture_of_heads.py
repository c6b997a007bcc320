"""Mixture of attention heads (Zhang et al. 2022, arXiv:2210.05144): heads routed per token.

M_h[i, j] = w_h(x_i) softmax_j(q_hi . k_j), where w is a softmax over all heads, set to 0 but for
the two largest and divided by their sum. Keys and values are shared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from interp.planted.variants.rule import (
    Chosen,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    Stream,
    among_largest,
)


class MixtureOfHeadsRule(Rule):
    """Rows of a head that was not chosen are zero; a row sums to its routing weight."""

    row_sum = "at most 1"
    chosen = 2  # heads per token

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.key, self.value = (nn.Linear(shape.d_model, shape.d_head, bias=False) for _ in "kv")
        self.router = nn.Linear(shape.d_model, shape.n_heads, bias=False)

    def prepare(self, x: Stream) -> Projected:
        """Add the routing weights."""
        given = super().prepare(x)
        share = self.router(x).softmax(-1)
        kept = share * among_largest(share, self.chosen)
        given.more["route"] = (kept / kept.sum(-1, keepdim=True)).transpose(1, 2)
        return given

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Weight rows by their route."""
        return super().rows(given, rows) * given.more["route"][:, :, rows, None]

    def parts(self, given: Projected) -> dict[str, Callable[[Chosen], MapBlock]]:
        """Return the softmaxes before the router."""
        return {"unrouted": partial(super().rows, given)}
