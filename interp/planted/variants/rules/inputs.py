"""Inputs changed before the projections: convolutions, averages and inner attention."""

from __future__ import annotations

import torch
from torch import nn

from interp.planted.variants.rule import (
    Chosen,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    Stream,
)


class ConditionalPositionsAttention(Rule):
    """Conditional positions (Chu et al. 2021, CPVT, arXiv:2102.10882): x + a convolution of x.

    Each channel is convolved over the token and the two before it; softmax attention follows. A
    token knows its place by its neighbours.
    """

    width = 3

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.kernel = nn.Parameter(torch.randn(self.width, shape.d_model) * self.width**-0.5)

    def prepare(self, x: Stream) -> Projected:
        """Add the convolution before the projections."""
        given = super().prepare(x + convolved(x, self.kernel))
        given.x = x
        return given


def convolved(x: Stream, kernel: torch.Tensor) -> Stream:
    """Return sum_a kernel[a] x[t - a] for each channel; zeros stand before the first token."""
    length = x.shape[-2]
    found = torch.zeros_like(x)
    for back, weight in enumerate(kernel):
        if back < length:
            pad = torch.zeros_like(x[..., :back, :])
            found = found + torch.cat([pad, x[..., : length - back, :]], -2) * weight
    return found


class ConvolvedProjectionsAttention(Rule):
    """Convolved projections (Sugiharto et al. 2023, RCMHA, arXiv:2308.03429): depthwise q, k and v.

    Queries, keys and values are convolved over the token and the two before it, and each
    distance has a learned score. A head compares short stretches of tokens.
    """

    width = 3

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (3, self.width, shape.n_heads * shape.d_head)
        self.kernels = nn.Parameter(torch.randn(size) * self.width**-0.5)
        self.bias = nn.Parameter(torch.randn(shape.n_heads, 32))

    def prepare(self, x: Stream) -> Projected:
        """Convolve the three projections."""
        parts = zip((self.query, self.key, self.value), self.kernels, strict=True)
        q, k, v = (self.split(convolved(part(x), kernel)) for part, kernel in parts)
        return Projected(x, q, k, v)

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Add the score of the distance; the last stands for all larger ones."""
        gap = (rows[:, None] - given.every).clamp(0, self.bias.shape[1] - 1)
        return super().scores(given, rows) + self.bias[:, gap]


class MovingAverageAttention(Rule):
    """Moving average (Ma et al. 2022, Mega, arXiv:2209.10655): q and k of an average of x.

    y_t = a x_t + (1 - a) y_(t-1) with a rate per channel; the softmax of y to y moves values of
    x. Queries and keys know their neighbourhood; values do not.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.rate = nn.Parameter(torch.randn(shape.d_model))

    def prepare(self, x: Stream) -> Projected:
        """Average before the projections to queries and keys."""
        rate, found = self.rate.sigmoid(), []
        state = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            state = rate * x[:, t] + (1 - rate) * state
            found.append(state)
        y = torch.stack(found, 1)
        q, k, v = self.query(y), self.key(y), self.value(x)
        return Projected(x, self.split(q), self.split(k), self.split(v))


class NestedAttention(Rule):
    """Nested attention (Han et al. 2021, Transformer in Transformer, arXiv:2103.00112).

    The 4 slices of a token attend to each other, are added to it, and softmax attention
    follows. An inner attention inside each token comes before the outer one between tokens.
    """

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


class FixedPointAttention(Rule):
    """Fixed point (Mathur et al. 2025, Change of Thought, arXiv:2507.13569): attention repeated.

    q_0 = W x, q_(t+1) = W (x + B z_t) with z_t = softmax(q_t k) v; M is that of the third q.
    Queries take in what they found before the layer writes.
    """

    rounds = 2

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.back = nn.Linear(self.d_out, shape.d_model, bias=False)

    def prepare(self, x: Stream) -> Projected:
        """Repeat the attention with queries of its own output."""
        given = super().prepare(x)
        for _ in range(self.rounds):
            z = self.rows(given, given.every) @ given.v
            given.q = self.split(self.query(x + self.back(z.transpose(1, 2).flatten(2))))
        return given
