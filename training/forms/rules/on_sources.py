"""Attention of a target's positions over the tokens of a source."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.forms.host_rules import SourceRule
from training.forms.rule import (
    Chosen,
    MapBlock,
    Projected,
    RuleShape,
    SeenBlock,
    masked_softmax,
)


class SourceAttention(SourceRule):
    """Source (Luong et al. 2015, arXiv:1508.04025): products of target and source, to all words.

    The global form with the general score q' W k, per head.
    """


class SourceConcatAttention(SourceRule):
    """Source by a sum (Bahdanau et al. 2014, arXiv:1409.0473): s_ij = u . tanh(q_i + k_j).

    Luong's form "concat", and what a pointer network points with.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.u = nn.Parameter(torch.randn(shape.n_heads, 1, 1, shape.d_head))

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return the scores of a small network."""
        both = given.q[:, :, rows, None] + given.k[:, :, None]
        return (both.tanh() * self.u).sum(-1)


class SourceWindowAttention(SourceRule):
    """Source window (Luong et al. 2015, local-p, arXiv:1508.04025): near a predicted place.

    p_i = S sigmoid(u . tanh(W h_i)) for S source words; softmax over the words within 2 D of the
    place p_i, times a Gaussian of width D / 2 = 1. A row says where it looks before it looks.
    """

    row_sum = "at most 1"
    width = 2.0  # D

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.hidden = nn.Linear(shape.d_model, shape.d_head, bias=False)
        self.place = nn.Linear(shape.d_head, shape.n_heads, bias=False)

    def places(self, given: Projected, rows: Chosen) -> Tensor:
        """Return the predicted place of each head and row, from 0 to the number of words."""
        share = self.place(torch.tanh(self.hidden(given.x[:, rows]))).sigmoid()
        return (share * given.more["real"].sum(1)[:, None, None]).transpose(1, 2)[..., None]

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep words near the place, and the nearest one."""
        gap = (given.keys - self.places(given, rows)).abs()
        real = super().seen(given, rows)
        gap = gap.masked_fill(~real, torch.inf)
        return real & (gap <= gap.amin(-1, keepdim=True).clamp_min(self.width))

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Weight the softmax by nearness to the place."""
        apart = given.keys - self.places(given, rows)
        return super().rows(given, rows) * (-2 * apart.square() / self.width**2).exp()


class SourceLocationAttention(SourceRule):
    """Source location (Chowdhury and Caragea 2023, arXiv:2305.20019): a place moves step by step.

    m_i = the sum of steps up to i, each from 0 to 1, less 1; M_ij ~ exp(-2 (p_j - m_i)^2), where
    p_j counts words from the start or from the end, as a gate per head mixes them. What words are
    plays no role in where a row looks.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        del self.query, self.key
        self.step = nn.Linear(shape.d_model, shape.n_heads)
        self.gate = nn.Linear(shape.d_model, shape.n_heads)

    def within(self, x: Tensor, context: tuple[Tensor, Tensor]) -> Projected:
        """Add the places of rows and keys."""
        source, real = context
        v = self.split(self.value(source))
        given = Projected(x, self.split(x)[..., :0], v[..., :0], v)
        given.more["real"] = real
        given.more["place"] = F.hardsigmoid(self.step(x)).cumsum(1).transpose(1, 2) - 1
        given.more["from_end"] = self.gate(x).sigmoid().transpose(1, 2)
        return given

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return the logarithms of Gaussians at the places."""
        back = given.more["real"].sum(1)[:, None, None, None] - 1 - given.keys
        share = given.more["from_end"][:, :, rows, None]
        at = share * back + (1 - share) * given.keys
        return -2 * (at - given.more["place"][:, :, rows, None]).square()


class SourcePastAttention(SourceRule):
    """Source past (Paulus et al. 2017, arXiv:1705.04304): words that were read count less.

    Intra-temporal attention: e_ij = exp(s_ij) over the sum of exp(s_lj) of the earlier rows l,
    exp(s_1j) for the first row; a row of the map is e_i over its sum.
    """

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Subtract the logarithm of what earlier rows gave to a key."""
        every = super().scores(given, torch.arange(given.q.shape[2], device=given.q.device))
        before = every.logcumsumexp(2)[:, :, :-1]
        return (every - F.pad(before, (0, 0, 1, 0)))[:, :, rows]


class SourceDrawAttention(SourceRule):
    """Source draw (Deng et al. 2018, arXiv:1807.03756): one word, drawn by its weight.

    While training, a word is drawn with the probabilities of the softmax, whose gradient it has
    (straight through); later a row is the mean of all draws, the softmax. Which word is read is a
    hidden variable.
    """

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Draw a key per row while training."""
        soft = masked_softmax(scores, seen)
        if not self.training:
            return soft
        drawn = torch.distributions.Categorical(soft.detach()).sample()
        return F.one_hot(drawn, soft.shape[-1]).to(soft.dtype) + soft - soft.detach()
