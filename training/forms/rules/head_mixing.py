"""Maps combined over heads, and heads that are gated."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from training.forms.rule import (
    Chosen,
    Heads,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    Stream,
    among_largest,
    head_norm,
    masked_softmax,
)


class GatedOutputAttention(Rule):
    """Gated attention (Qiu et al. 2025, arXiv:2505.06708): softmax, then sigmoid(W x) on z.

    A head can be closed without a sink.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.gate = nn.Linear(shape.d_model, self.d_out, bias=False)

    def after(self, z: Heads, given: Projected) -> Tensor:
        """Gate each entry of the heads' outputs."""
        return torch.sigmoid(self.gate(given.x)) * super().after(z, given)


class DifferentialAttention(Rule):
    """Differential (Ye et al. 2024, arXiv:2410.05258): softmax(q1 k1) - lambda softmax(q2 k2).

    lambda = exp(a . b) - exp(c . d) + l0 with l0 = 0.8 - 0.6 exp(-0.3 layer). A norm of each
    head and the factor 1 - l0 follow. Queries and keys are two halves of a head's width. The
    attention that both softmaxes give cancels.
    """

    signed = True
    row_sum = "constant"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.vectors = nn.Parameter(0.1 * torch.randn(4, shape.d_head // 2))
        self.first = 0.8 - 0.6 * math.exp(-0.3 * shape.layer)

    @property
    def factor(self) -> Tensor:
        """Lambda."""
        a, b, c, d = self.vectors
        return (a @ b).exp() - (c @ d).exp() + self.first

    def parts(self, given: Projected) -> dict[str, Callable[[Chosen], MapBlock]]:
        """Return both softmaxes."""
        halves = zip(given.q.chunk(2, -1), given.k.chunk(2, -1), strict=True)

        def softmaxes(q: Heads, k: Heads, rows: Chosen) -> MapBlock:
            scores = q[:, :, rows] @ k.mT * q.shape[-1] ** -0.5
            return masked_softmax(scores, self.seen(given, rows))

        first, second = (partial(softmaxes, q, k) for q, k in halves)
        return {"first": first, "second": second}

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Subtract the second softmax."""
        both = self.parts(given)
        return both["first"](rows) - self.factor * both["second"](rows)

    def after(self, z: Heads, given: Projected) -> Tensor:
        """Normalise each head."""
        return super().after((1 - self.first) * head_norm(z), given)


class TalkingHeadsAttention(Rule):
    """Talking heads (Shazeer et al. 2020, arXiv:2003.02436): heads mixed around the softmax.

    M_h = sum_g W[h, g] softmax(sum_f P[g, f] s_f). The attention of each head depends on the
    scores of all heads.
    """

    signed = True
    row_sum = "constant"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (shape.n_heads, shape.n_heads)
        self.before, self.behind = (
            nn.Parameter(torch.eye(shape.n_heads) + 0.3 * torch.randn(size)) for _ in range(2)
        )

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Mix scores, then softmaxes."""
        softmaxes = self.parts(given)["mixed"](rows)
        return torch.einsum("hg,bgij->bhij", self.behind, softmaxes)

    def parts(self, given: Projected) -> dict[str, Callable[[Chosen], MapBlock]]:
        """Return the softmaxes of each head's own scores, and those that are mixed."""

        def mixed(rows: Chosen) -> MapBlock:
            scores = torch.einsum("gf,bfij->bgij", self.before, self.scores(given, rows))
            return masked_softmax(scores, self.seen(given, rows))

        def own(rows: Chosen) -> MapBlock:
            return masked_softmax(self.scores(given, rows), self.seen(given, rows))

        return {"own": own, "mixed": mixed}


class MixtureOfHeadsAttention(Rule):
    """Mixture of attention heads (Zhang et al. 2022, arXiv:2210.05144): heads routed per token.

    M_h[i, j] = w_h(x_i) softmax_j(q_hi . k_j), where w is a softmax over all heads, set to 0
    but for the two largest and divided by their sum. Keys and values are shared. Rows of a head
    that was not chosen are zero; a row sums to its routing weight.
    """

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
