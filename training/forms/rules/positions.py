"""Positions in the map: scores and factors of distances and places."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from training.forms.rule import (
    Chosen,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    Stream,
)


class AlibiAttention(Rule):
    """ALiBi (Press et al. 2021, arXiv:2108.12409): softmax_j(s_ij - m_h (i - j)).

    The slope m_h of head h in 1..H is 2^(-8 h / H). Scores fall with the distance, at a fixed
    slope per head.
    """

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Subtract the slope times the distance."""
        heads = torch.arange(1, self.shape.n_heads + 1, device=rows.device)
        slope = 2.0 ** (-8 * heads / self.shape.n_heads)
        gap = rows[:, None] - given.every
        return super().scores(given, rows) - slope[:, None, None] * gap


class RelativeBiasAttention(Rule):
    """Relative bias (Raffel et al. 2019, T5, arXiv:1910.10683): softmax_j(s_ij + b_h[bucket]).

    The bucket is of i - j. Buckets are one distance wide up to 8 and then grow by the
    logarithm, up to 16 buckets and a distance of 64. T5's scores are not scaled; here they are.
    A learned score per distance.
    """

    buckets = 16
    exact = 8
    farthest = 64

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.bias = nn.Parameter(torch.randn(shape.n_heads, self.buckets))

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Add the bias of the distance's bucket."""
        gap = (rows[:, None] - given.every).clamp_min(0)
        far = (
            (gap.clamp_min(1) / self.exact).log()
            / math.log(self.farthest / self.exact)
            * (self.buckets - self.exact)
        )
        bucket = torch.where(gap < self.exact, gap, self.exact + far.long()).clamp_max(
            self.buckets - 1
        )
        return super().scores(given, rows) + self.bias[:, bucket]


class ToeplitzProductAttention(Rule):
    """Toeplitz product (Luo et al. 2022, URPE, arXiv:2205.13401): softmax_j(s_ij) c_h[i - j].

    The learned factor of the distance stands outside the softmax, with any sign. Rows need not
    sum to 1, so that they can count and tell positions.
    """

    signed = True
    row_sum = "any"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.factor = nn.Parameter(1 + 0.7 * torch.randn(shape.n_heads, 16))

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Multiply the softmax; the last factor stands for all larger distances."""
        gap = (rows[:, None] - given.every).clamp(0, self.factor.shape[1] - 1)
        return super().rows(given, rows) * self.factor[:, gap]


class GaussianMaskAttention(Rule):
    """Gaussian mask (Li and Zhang 2023, RetNet as convolution, arXiv:2309.05375): softmax(g * s).

    Positions are patches of a grid of width 4, and g_ij = sum_r a_hr exp(-d_ij^2 / (2 b_hr^2)) over
    two Gaussians of their distance d. It sees later positions. Nearness in two dimensions as a
    factor of the scores, of two numbers per Gaussian.
    """

    width = 4
    gaussians = 2
    causal = False

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (2, shape.n_heads, self.gaussians, 1, 1)
        height, spread = torch.rand(size)
        self.height, self.spread = nn.Parameter(0.5 + height), nn.Parameter(1 + 3 * spread)

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Weight scores by nearness in the grid."""
        down = rows[:, None] // self.width - given.every // self.width
        across = rows[:, None] % self.width - given.every % self.width
        apart = (down.square() + across.square()).to(given.q.dtype)
        mask = self.height * (-apart / (2 * self.spread.square() + 1e-5)).exp()
        return super().scores(given, rows) * mask.sum(1)


class PositionalAttention(Rule):
    """Positional attention (Back de Luca et al. 2024, arXiv:2410.01686): scores of positions alone.

    M[i, j] = softmax_j(p_i . r_j / sqrt(d)) with learned p and r per head. The map is the same
    for all tokens.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        del self.query, self.key
        size = (shape.n_heads, shape.length, shape.d_head)
        self.of_query, self.of_key = (nn.Parameter(torch.randn(size)) for _ in range(2))

    def prepare(self, x: Stream) -> Projected:
        """Return rows of the tables as queries and keys."""
        v = self.split(self.value(x))
        q, k = (t[:, : x.shape[1]].expand(len(x), -1, -1, -1) for t in (self.of_query, self.of_key))
        return Projected(x, q, k, v)


class SynthesizerAttention(Rule):
    """Dense synthesizer (Tay et al. 2020, arXiv:2005.00743): scores of the query's input alone.

    s_i = relu(x_i W_h) U_h, one entry per position: no query is compared with a key. A token
    decides at which positions to look without looking at them.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        del self.key
        self.to_positions = nn.Parameter(torch.randn(shape.n_heads, shape.d_head, shape.length))

    def prepare(self, x: Stream) -> Projected:
        """Return queries and values; there are no keys."""
        q = self.split(self.query(x)).relu()
        return Projected(x, q, q[..., :0], self.split(self.value(x)))

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return scores of positions."""
        return given.q[:, :, rows] @ self.to_positions[..., : len(given.every)]


class MonotonicLocationAttention(Rule):
    """Monotonic location (Chowdhury and Caragea 2023, arXiv:2305.20019): a place moves forward.

    m_i = sum over l <= i of sigmoid(w . x_l); M_ij ~ exp(-(j - m_i)^2 / 2) over visible keys.
    No queries and no keys: tokens say how far the place moves.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        del self.query, self.key
        self.step = nn.Linear(shape.d_model, shape.n_heads)

    def prepare(self, x: Stream) -> Projected:
        """Add the places."""
        v = self.split(self.value(x))
        given = Projected(x, v, v, v)
        given.more["place"] = self.step(x).sigmoid().cumsum(1).transpose(1, 2)
        return given

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return the logarithms of Gaussians at the places."""
        return -(given.every - given.more["place"][:, :, rows, None]).square() / 2


class PredictedWindowAttention(Rule):
    """Predicted window (Luong et al. 2015, arXiv:1508.04025): softmax times a Gaussian at p_i.

    p_i = i sigmoid(u . tanh(W x_i)), width 2; weights are not normalised again. A row says
    where it looks before it looks.
    """

    width = 2.0
    row_sum = "at most 1"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.hidden = nn.Linear(shape.d_model, shape.d_head, bias=False)
        self.place = nn.Linear(shape.d_head, shape.n_heads, bias=False)

    def prepare(self, x: Stream) -> Projected:
        """Add the predicted places."""
        given = super().prepare(x)
        share = self.place(torch.tanh(self.hidden(x))).sigmoid()
        given.more["place"] = (share * given.every[:, None]).transpose(1, 2)
        return given

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Weight the softmax by nearness to the place."""
        apart = given.every - given.more["place"][:, :, rows, None]
        return super().rows(given, rows) * (-apart.square() / (2 * self.width**2)).exp()


class ForgettingAttention(Rule):
    """Forgetting (Lin et al. 2025, FoX, arXiv:2503.02130): softmax_j(s_ij + sum of log f).

    The sum is over l in j+1..i of log sigmoid(w_h . x_l + b_h). A token can hide what came
    before it.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.forget = nn.Linear(shape.d_model, shape.n_heads)

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Add the logs of the forget gates between key and query."""
        total = F.logsigmoid(self.forget(given.x)).transpose(1, 2).cumsum(-1)
        return super().scores(given, rows) + total[:, :, rows, None] - total[:, :, None]
