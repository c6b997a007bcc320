"""Softmax and what replaces it: how the scores of a row become weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.forms.rule import (
    Chosen,
    Heads,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    SeenBlock,
    Stream,
    masked_softmax,
    over_sum,
)


class PlainSoftmaxAttention(Rule):
    """Softmax (Vaswani et al. 2017, arXiv:1706.03762): M[i, j] = softmax_j(q_i . k_j / sqrt(d)).

    Scaled dot-product attention, the reference that the others change.
    """


class ClippedAttention(Rule):
    """Clipped (Bondarenko et al. 2023, arXiv:2306.12929): clip((z - g) softmax(s) + g, 0, 1).

    Here z = 1 and g = -0.03, so that small weights are exactly 0. A head can do nothing without
    an infinite score.
    """

    stretch = 1.0
    offset = -0.03
    row_sum = "at most 1"

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Stretch the softmax beyond [0, 1], and clip it."""
        return ((self.stretch - self.offset) * masked_softmax(scores, seen) + self.offset).clamp(
            0, 1
        )


class RelaxedAttention(Rule):
    """Relaxed attention (Lohrenz et al. 2022, arXiv:2209.09735): (1 - g) softmax(s) + g / n_i.

    n_i is the number of visible keys; g = 0.1. A share of every row is uniform over its visible
    keys.
    """

    share = 0.1  # g

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Mix softmax and uniform weights."""
        return (1 - self.share) * masked_softmax(scores, seen) + self.share * seen / seen.sum(
            -1, keepdim=True
        )


class OffByOneAttention(Rule):
    """Softmax off by one (Miller 2023, Attention is off by one): exp(s_ij) / (1 + sum_l exp(s_il)).

    A softmax over the keys and one more key with score and value 0.
    """

    row_sum = "at most 1"

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Multiply the softmax by the share that the keys have beside the 1."""
        total = scores.masked_fill(~seen, -torch.inf).logsumexp(-1, keepdim=True)
        return masked_softmax(scores, seen) * torch.sigmoid(total)


class SinkLogitAttention(Rule):
    """Sink logit (gpt-oss, 2025): softmax with a learned logit per head, which is dropped.

    A learned amount of attention goes to no token.
    """

    row_sum = "at most 1"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.sink = nn.Parameter(torch.randn(shape.n_heads))

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Multiply the softmax by the share that the keys have beside the sink."""
        total = scores.masked_fill(~seen, -torch.inf).logsumexp(-1, keepdim=True)
        return masked_softmax(scores, seen) * torch.sigmoid(total - self.sink[:, None, None])


class SparsemaxAttention(Rule):
    """Sparsemax (Martins and Astudillo 2016, arXiv:1602.02068): M[i, j] = max(s_ij - tau_i, 0).

    tau_i is such that the row sums to 1: the projection of the scores onto the simplex. Exact
    zeros where scores are below a threshold.
    """

    hidden = -1e4  # score of a key that is not visible

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Project rows onto the simplex: tau from the sorted scores of the support."""
        scores = scores.masked_fill(~seen, self.hidden)
        ordered = scores.sort(-1, descending=True).values
        number = torch.arange(1, scores.shape[-1] + 1, device=scores.device)
        total = ordered.cumsum(-1)
        size = (1 + number * ordered > total).sum(-1, keepdim=True)
        tau = (total.gather(-1, size - 1) - 1) / size
        return (scores - tau).clamp_min(0) * seen


class EntmaxAttention(Rule):
    """Entmax 1.5 (Peters et al. 2019, arXiv:1905.05702): M[i, j] = max(s_ij / 2 - tau_i, 0)^2.

    tau_i is such that the row sums to 1. Between softmax and sparsemax: exact zeros, and a
    smooth edge.
    """

    hidden = -1e3  # half score of a key that is not visible

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Solve the quadratic for tau on every prefix of the sorted scores; take the support's."""
        half = (scores / 2).masked_fill(~seen, -torch.inf)
        half = (half - half.amax(-1, keepdim=True)).masked_fill(~seen, self.hidden)
        ordered = half.sort(-1, descending=True).values
        number = torch.arange(1, scores.shape[-1] + 1, device=scores.device)
        mean = ordered.cumsum(-1) / number
        spread = ordered.square().cumsum(-1) - number * mean.square()
        left = (1 - spread) / number
        # the root's derivative at 0 is infinite
        tau = mean - torch.where(left > 0, left, 1).sqrt() * (left > 0)
        size = (tau <= ordered).sum(-1, keepdim=True)
        return (half - tau.gather(-1, size - 1)).clamp_min(0).square() * seen


class AdaptiveEntmaxAttention(Rule):
    """Adaptive entmax (Correia et al. 2019, arXiv:1909.00015): a power that each head learns.

    M[i, j] = max((a_h - 1) s_ij - tau_i, 0)^(1 / (a_h - 1)) with a_h = 1 + sigmoid(w_h) and tau_i
    such that the row sums to 1. Between softmax (a = 1) and sparsemax (a = 2), head by head.
    """

    halvings = 40  # of the interval of tau

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.logit = nn.Parameter(torch.randn(shape.n_heads))

    @property
    def powers(self) -> Tensor:
        """The power a of each head."""
        return 1 + self.logit.sigmoid()

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Find tau by bisection; one step of Newton's method gives its gradient."""
        a = (self.powers - 1)[:, None, None]
        scaled = (a * scores).masked_fill(~seen, -torch.inf)

        def above(tau: Tensor) -> Tensor:
            return (scaled - tau).clamp_min(0)

        with torch.no_grad():
            high = scaled.amax(-1, keepdim=True)
            low = high - 1
            for _ in range(self.halvings):
                tau = (low + high) / 2
                small = (above(tau) ** (1 / a)).sum(-1, keepdim=True) < 1
                low, high = torch.where(small, low, tau), torch.where(small, tau, high)
            base = above(low)
            slope = torch.where(base > 0, base ** (1 / a - 1), 0).sum(-1, keepdim=True) / a
        tau = low + ((above(low) ** (1 / a)).sum(-1, keepdim=True) - 1) / slope
        return above(tau) ** (1 / a)


class TaylorAttention(Rule):
    """Taylor softmax (Nauen et al. 2024, TaylorShift, arXiv:2403.02920): 1 + s + s^2/2, normalised.

    The exponential's series to second order, which is positive.
    """

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Normalise the series over visible keys."""
        found = (1 + scores + scores.square() / 2) * seen
        return over_sum(found)


class FastmaxAttention(TaylorAttention):
    """Fastmax (Gerami et al. 2024, FAST, arXiv:2402.07901): 1 + s + s^2/2 of standardised q and k.

    s = q . k without a scale, where q and k have mean 0 and variance 1 over their features. A
    polynomial kernel, which factors into features.
    """

    def prepare(self, x: Stream) -> Projected:
        """Standardise queries and keys; the root of d cancels the scale of the scores."""
        given = super().prepare(x)
        given.q, given.k = (standard(t) for t in (given.q, given.k))
        given.q = given.q * given.q.shape[-1] ** 0.5
        return given


def standard(x: Heads) -> Heads:
    """Return features of mean 0 and variance 1."""
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


class SoftplusAttention(Rule):
    """Softplus (Gao and Spratling 2025, arXiv:2501.13428): softplus(s_ij) / sum_l softplus(s_il).

    The paper's scaling by the length and its re-weighting by a power are left out. Linear, not
    exponential, in large scores.
    """

    power = 1

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Normalise a power of the softplus over visible keys."""
        found = F.softplus(scores) ** self.power * seen
        return over_sum(found)


class SoftplusPowerAttention(SoftplusAttention):
    """Softplus with a power (Gao and Spratling 2025, arXiv:2501.13428): softplus(s)^3, normalised.

    The paper's scaling by the length and its offset before the power are left out. Re-weighting
    by a power sharpens weights that are linear in large scores.
    """

    power = 3


class StickBreakingAttention(Rule):
    """Stick-breaking (Tan et al. 2024, arXiv:2410.17980): b_ij prod of (1 - b_il) between.

    b = sigmoid(s) for j < i, so nearer keys take their share first; a row's own position is
    hidden. Recency without positions; what no key takes is lost.
    """

    row_sum = "at most 1"

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Hide the row's own position."""
        return given.every < rows[:, None]

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Multiply by what nearer keys have left."""
        left = F.logsigmoid(-scores) * seen
        nearer = left.flip(-1).cumsum(-1).flip(-1) - left
        return (F.logsigmoid(scores) + nearer).exp() * seen


class SignedAttention(Rule):
    """Signed, or Cog (Lv et al. 2024, arXiv:2411.07176): sign(s_ij) exp|s_ij| / sum_l exp|s_il|.

    Defined here by this formula; the absolute values of a row sum to 1. A head can subtract
    what it attends to.
    """

    signed = True
    row_sum = "absolute 1"

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Return the softmax of absolute scores with the scores' signs."""
        return scores.sign() * masked_softmax(scores.abs(), seen)


class NormalisedScoresAttention(Rule):
    """Normalised attention (Richter and Wattenhofer 2020, arXiv:2005.09561): standardised scores.

    M[i, j] = (a_h (s_ij - mean_i) / sd_i + b_h) / n_i over the n_i visible keys, so it can
    leave the simplex. Defined here by this formula. Weights can be negative and larger than 1.
    """

    signed = True
    row_sum = "constant"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.gain = nn.Parameter(torch.ones(shape.n_heads, 1, 1))
        self.bias = nn.Parameter(torch.rand(shape.n_heads, 1, 1))

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Standardise visible scores."""
        number = seen.sum(-1, keepdim=True)
        scores = scores * seen
        centred = (scores - scores.sum(-1, keepdim=True) / number) * seen
        spread = (centred.square().sum(-1, keepdim=True) / number + 1e-5).sqrt()
        return (self.gain * centred / spread + self.bias) * seen / number


class SigmoidAttention(Rule):
    """Sigmoid (Ramapuram et al. 2024, arXiv:2409.04431): M[i, j] = sigmoid(s_ij - log n_i).

    n_i is the number of visible keys; there is no normalisation, so a row can attend to
    nothing. Every key is weighted on its own.
    """

    row_sum = "any"

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Return the sigmoid of scores less the log of the number of keys."""
        number = seen.sum(-1, keepdim=True)
        return torch.sigmoid(scores - number.log()) * seen


class ReluAttention(Rule):
    """ReLU (Wortsman et al. 2023, arXiv:2309.08586): M[i, j] = relu(s_ij) / n_i.

    n_i is the number of visible keys. Rectified scores over the number of keys.
    """

    row_sum = "any"

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Return the positive parts of visible scores over their number."""
        return scores.relu() * seen / seen.sum(-1, keepdim=True)


class ReluNormAttention(Rule):
    """Rectified linear (Zhang et al. 2021, ReLA, arXiv:2104.07012): relu(s_ij), gated norm of z.

    z of all heads together is divided by its root mean square and gated by sigmoid(w * z), with a
    learned w per feature. Rectified scores without a normalisation of the row; the output is
    normalised instead.
    """

    row_sum = "any"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.gain, self.gate = (
            nn.Parameter(torch.ones(self.d_out)),
            nn.Parameter(torch.randn(self.d_out)),
        )

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Return the positive parts of visible scores."""
        return scores.relu() * seen

    def after(self, z: Heads, given: Projected) -> Tensor:
        """Normalise all heads together, and gate each feature by itself."""
        x = super().after(z, given)
        return self.gain * F.rms_norm(x, x.shape[-1:], eps=1e-6) * (self.gate * x).sigmoid()


class ExponentialNormAttention(Rule):
    """Exponential and norm (Mongaras and Larson 2025, arXiv:2507.23632): exp(s_ij), norm of z.

    The sum that divides softmax is replaced by the norm of each head's output; s is of unit q
    and k. Softmax as a recurrence: its numerator, with a norm in place of its denominator.
    """

    row_sum = "any"
    unit_norm = True
    output_norm = True

    def prepare(self, x: Stream) -> Projected:
        """Scale queries, so that the scores are the cosines."""
        given = super().prepare(x)
        given.q = given.q * given.q.shape[-1] ** 0.5
        return given

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Return the exponentials of visible scores."""
        return scores.exp() * seen
