"""Linear attention: products of features of queries and keys."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.forms.rule import (
    Chosen,
    FeatureRule,
    Heads,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    Stream,
    over_sum,
)


class LinearAttention(FeatureRule):
    """Linear attention (Katharopoulos et al. 2020, arXiv:2006.16236): features phi(x) = elu(x) + 1.

    M[i, j] = phi(q_i) . phi(k_j) / sum over visible l of phi(q_i) . phi(k_l). Positive
    features, normalised.
    """

    def feature(self, x: Heads, given: Projected) -> Heads:
        """Return elu(x) + 1."""
        return F.elu(x) + 1


class CosformerAttention(FeatureRule):
    """cosFormer (Qin et al. 2022, arXiv:2202.08791): relu products times a cosine.

    M[i, j] is relu(q_i) . relu(k_j) cos(pi (i - j) / 2n), normalised; n is the longest
    sequence. Rectified features, weighted by nearness: the cosine of a difference splits in
    two.
    """

    def feature(self, x: Heads, given: Projected) -> Tensor:
        """Return rectified features times cosine and sine of their place."""
        angle = math.pi / 2 * given.every[:, None].to(x.dtype) / self.shape.length
        return torch.cat([x.relu() * angle.cos(), x.relu() * angle.sin()], -1)


class FocusedLinearAttention(FeatureRule):
    """Focused linear (Han et al. 2023, FLatten, arXiv:2308.00442): relu(x)^3 of equal norm.

    phi(x) = |r| / |r^3| r^3 with r = relu(x) + 1e-6; the convolution of the values is left out.
    A power turns features towards their largest, so that linear attention is sharper.
    """

    power = 3
    least = 1e-30

    def feature(self, x: Heads, given: Projected) -> Tensor:
        """Return the power, scaled back to the norm."""
        r = x.relu() + 1e-6
        sharp = (r / r.amax(-1, keepdim=True)) ** self.power
        return sharp * (r.norm(dim=-1, keepdim=True) / sharp.norm(dim=-1, keepdim=True))


class LogNormalAttention(FeatureRule):
    """Linear log-normal (Nahshan et al. 2023, LLN, arXiv:2311.13541): phi(x) = exp(x) of scaled x.

    Queries are scaled by t / (sqrt(2) s_q) and keys by t / (sqrt(2) s_k), where s are the root mean
    squares up to the token, and a t^2 + b = s_q^2 s_k^2: the variance of the log of a product of
    features, which a line in t^2 approximates, is then that of softmax scores. The published
    scale is one per layer, of all tokens. Linear attention as concentrated as softmax.
    """

    largest = 40.0  # of an exponent

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        draws = torch.randn(4096, shape.d_head, generator=torch.Generator().manual_seed(0))
        spread = torch.linspace(1, 5, 9)
        variance = torch.stack([(t * draws).logsumexp(-1).var() for t in spread])
        line = torch.stack([spread.square(), torch.ones_like(spread)], 1)
        self.a, self.b = torch.linalg.lstsq(line, variance[:, None]).solution[:, 0].tolist()

    def prepare(self, x: Stream) -> Projected:
        """Return scaled queries and keys."""
        given = super().prepare(x)
        sizes = [
            (part.square().mean(-1, keepdim=True).cumsum(2) / (given.every[:, None] + 1)).sqrt()
            for part in (given.q, given.k)
        ]
        wanted = ((sizes[0] * sizes[1]).square() - self.b).clamp_min(0) / self.a
        scale = [(wanted / 2).sqrt() / size.clamp_min(1e-6) for size in sizes]
        return replace(given, q=given.q * scale[0], k=given.k * scale[1])

    def feature(self, x: Heads, given: Projected) -> Tensor:
        """Return exponentials."""
        return x.clamp_max(self.largest).exp()


class RandomFeaturesAttention(FeatureRule):
    """Performer (Choromanski et al. 2020, arXiv:2009.14794): random features that estimate exp(s).

    phi(x) = exp(w . x - |x|^2 / 2) / sqrt(m) over m Gaussian w, of x scaled by d^-1/4; the w
    are drawn once and kept with the weights. An estimate of softmax attention in linear time.
    """

    drawn = 32  # features per head
    least = 0.0

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        draws = torch.randn(shape.n_heads, self.drawn, shape.d_head)
        self.draws = nn.Parameter(draws, requires_grad=False)

    def feature(self, x: Heads, given: Projected) -> Tensor:
        """Return positive random features."""
        x = x * x.shape[-1] ** -0.25
        exponent = x @ self.draws.mT - x.square().sum(-1, keepdim=True) / 2
        return exponent.exp() * self.drawn**-0.5


class KernelRelativeAttention(Rule):
    """Kernel with distances (Luo et al. 2021, arXiv:2106.12566): phi(q) . phi(k) exp(b_ij).

    q and k have norm 1, phi are positive random features, and b is a learned score of the
    distance. Linear attention that knows distances; a Toeplitz matrix times a kernel.
    """

    unit_norm = True
    drawn = 16

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        draws = torch.randn(shape.n_heads, shape.d_head, self.drawn)
        self.draws = nn.Parameter(draws, requires_grad=False)
        self.bias = nn.Parameter(torch.randn(shape.n_heads, 32))

    def feature(self, x: Heads) -> Heads:
        """Return positive random features of vectors of norm 1."""
        return (x @ self.draws - 0.5).exp()

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Weight products of features by the distance, and normalise."""
        gap = (rows[:, None] - given.every).clamp(0, self.bias.shape[1] - 1)
        products = self.feature(given.q[:, :, rows]) @ self.feature(given.k).mT
        found = products * self.bias[:, gap].exp() * self.seen(given, rows)
        return over_sum(found)


class LatentStatesAttention(Rule):
    """Latent states (Dolga et al. 2024, Latte, arXiv:2402.17512): attention through a few states.

    M_ij = sum_l softmax_l(q_i)_l exp(k_jl) / sum over visible m of exp(k_ml), a state per
    feature. A row chooses states, and states choose tokens; rank at most the number of states.
    """

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Chain the two distributions."""
        weight = (given.k - given.k.amax(2, keepdim=True)).exp()
        share = given.q[:, :, rows].softmax(-1) / weight.cumsum(2)[:, :, rows]
        return share @ weight.mT * self.seen(given, rows)

    def mix(self, given: Projected) -> Heads:
        """Keep a running mean of values per state."""
        weight = (given.k - given.k.amax(2, keepdim=True)).exp()
        sums = (weight[..., None] * given.v[..., None, :]).cumsum(2)
        means = sums / weight.cumsum(2)[..., None]
        return (given.q.softmax(-1)[..., None] * means).sum(3)


class TwoSoftmaxesAttention(Rule):
    """Efficient attention (Shen et al. 2018, arXiv:1812.01243): softmaxes of features, positions.

    M = softmax_c(q) softmax_j(k)': rows sum to 1. It sees later positions. Each feature of the
    keys is a pattern over positions; queries mix these patterns.
    """

    causal = False

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Mix the features' patterns."""
        return given.q[:, :, rows].softmax(-1) @ given.k.softmax(2).mT

    def mix(self, given: Projected) -> Heads:
        """Sum values per feature first."""
        return given.q.softmax(-1) @ (given.k.softmax(2).mT @ given.v)


class FlowConservationAttention(Rule):
    """Flow conservation (Wu et al. 2022, Flowformer, arXiv:2202.06258): competition and allocation.

    M_ij = sigmoid(a_i) phi(q_i) . phi(k_j) / I_i n softmax_j(b_j), phi = sigmoid; I_i and O_j
    are the flows into i and out of j, a_i and b_j those after the others are set to 1. It sees
    later positions. Keys compete for what they send, and rows for what they receive.
    """

    row_sum = "any"
    causal = False

    def total(self, x: Tensor) -> Tensor:
        """Sum over the positions that exchange flow with each position."""
        return x.sum(2, keepdim=True)

    def _flows(self, given: Projected) -> tuple[Heads, Heads, Tensor, Tensor]:
        """Return features of queries over inflow, of keys, competition and allocation."""
        q, k = given.q.sigmoid(), given.k.sigmoid()
        number = self.total(torch.ones_like(q[..., :1]))
        into = (q * self.total(k)).sum(-1, keepdim=True)
        out = (k * self.total(q)).sum(-1, keepdim=True)
        kept_in = (q * self.total(k * number / out)).sum(-1, keepdim=True) / number
        kept_out = (k * self.total(q * number / into)).sum(-1, keepdim=True) / number
        sent = kept_out.clamp(-1, 1).exp()
        return q / into, k, sent / self.total(sent) * number, kept_in.sigmoid()

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return products between competition and allocation."""
        q, k, competition, allocation = self._flows(given)
        found = allocation[:, :, rows] * (q[:, :, rows] @ k.mT) * competition.mT
        return found * self.seen(given, rows)

    def mix(self, given: Projected) -> Heads:
        """Sum values per feature first."""
        q, k, competition, allocation = self._flows(given)
        states = self.total(k[..., None] * (competition * given.v)[..., None, :])
        return allocation * (q[..., None, :] @ states)[..., 0, :]


class CausalFlowAttention(FlowConservationAttention):
    """Causal flow (Wu et al. 2022, Flowformer, arXiv:2202.06258): flow between earlier positions.

    Flow conservation in which every sum is over the positions up to i, or up to j, and their number
    takes the place of n. Keys compete with those before them.
    """

    causal = True

    def total(self, x: Tensor) -> Tensor:
        """Sum over the positions up to each position."""
        return x.cumsum(2)


class HydraAttention(Rule):
    """Hydra attention (Bolya et al. 2022, arXiv:2209.07484): as many heads as features.

    Head c has M[i, j] = q_ic k_jc of queries and keys of norm 1, not normalised. Heads of width
    1, whose map has rank 1 before the causal mask.
    """

    signed = True
    row_sum = "any"

    def __init__(self, shape: RuleShape):
        super().__init__(replace(shape, n_heads=shape.n_heads * shape.d_head, d_head=1))

    def prepare(self, x: Stream) -> Projected:
        """Return queries and keys of norm 1, one feature per head."""
        q, k = (F.normalize(part(x), dim=-1) for part in (self.query, self.key))
        return Projected(x, self.split(q), self.split(k), self.split(self.value(x)))

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return products of one feature each."""
        return given.q[:, :, rows] @ given.k.mT * self.seen(given, rows)

    def mix(self, given: Projected) -> Heads:
        """Gate a running sum of keys times values by the query."""
        return given.q * (given.k * given.v).cumsum(2)
