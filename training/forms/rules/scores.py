"""Scores of a query and a key that are no scaled product."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.nn import functional as F

from training.forms.rule import (
    Chosen,
    Heads,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    Stream,
    head_norm,
    masked_softmax,
)


class AdditiveAttention(Rule):
    """Additive scores (Bahdanau et al. 2014, arXiv:1409.0473; pointer networks, arXiv:1506.03134).

    M[i, j] = softmax_j(u_h . tanh(q_i + k_j)). Scores of a small network instead of a product.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.u = nn.Parameter(torch.randn(shape.n_heads, shape.d_head))

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return the network's scores."""
        together = torch.tanh(given.q[:, :, rows, None] + given.k[:, :, None])
        return torch.einsum("bhijd,hd->bhij", together, self.u)


class NeuralScoresAttention(Rule):
    """Neural attention (DiGiugno and Mahmood 2025, arXiv:2502.17206): scores of a small network.

    s_ij = w . relu(A q_i + B k_j + c), then a softmax. A score is no product: it can prefer any
    pairs of queries and keys.
    """

    hidden = 6

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (2, shape.n_heads, shape.d_head, self.hidden)
        self.first = nn.Parameter(torch.randn(size) * shape.d_head**-0.5)
        self.bias = nn.Parameter(0.3 * torch.randn(shape.n_heads, 1, 1, self.hidden))
        self.last = nn.Parameter(torch.randn(shape.n_heads, self.hidden, 1))

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return the outputs of the network."""
        q, k = given.q[:, :, rows] @ self.first[0], given.k @ self.first[1]
        hidden = (q[:, :, :, None] + k[:, :, None] + self.bias).relu()
        return (hidden @ self.last[:, None])[..., 0]


class CosineAttention(Rule):
    """Cosine (Liu et al. 2021, Swin v2, arXiv:2111.09883): softmax_j(t_h cos(q_i, k_j)).

    The factor t_h is learned. Norms of queries and keys do not matter.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.log_scale = nn.Parameter(torch.full((shape.n_heads, 1, 1), 2.0))

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return scaled cosines."""
        q, k = (F.normalize(x, dim=-1) for x in (given.q[:, :, rows], given.k))
        return q @ k.mT * self.log_scale.exp()


class InverseDistanceAttention(Rule):
    """Inverse distance (McCarter 2023, arXiv:2310.18805): 1 / (|q_i - k_j|^2 + e), normalised.

    A key that equals the query takes almost all of the row.
    """

    least = 1e-3  # e

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return minus the log of squared distances."""
        gap = given.q[:, :, rows, None] - given.k[:, :, None]
        return -(gap.square().sum(-1) + self.least).log()


class MixtureOfKeysAttention(Rule):
    """Mixture of keys (Nguyen et al. 2021, MGK, arXiv:2110.08678): two Gaussian keys per position.

    M[i, j] proportional to sum_r p_r exp(-|q_i - k_jr|^2 / (2 sqrt(d))). A position can be
    found in two ways.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.second_key = nn.Linear(shape.d_model, self.d_out, bias=False)
        self.share = nn.Parameter(torch.zeros(shape.n_heads, 2))

    def prepare(self, x: Stream) -> Projected:
        """Add the second keys."""
        given = super().prepare(x)
        given.more["second"] = self.split(self.second_key(x))
        return given

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return logs of the mixture's densities."""
        q, scale = given.q[:, :, rows], 0.5 * given.q.shape[-1] ** -0.5
        log_share = self.share.log_softmax(-1)[..., None, None]
        near = [
            log_share[:, r] - scale * (q[:, :, :, None] - k[:, :, None]).square().sum(-1)
            for r, k in enumerate((given.k, given.more["second"]))
        ]
        return torch.logaddexp(*near)


class ProbabilisticAttention(Rule):
    """Probabilistic (Gabbur et al. 2021, arXiv:2106.08105): posterior of a Gaussian mixture.

    M_ij ~ exp(p_j - a_h |q_i - k_j|^2 / 2) with a prior logit p of each token and a precision
    per head. Keys are centres of Gaussians; a row asks which of them made its query. At inference
    the centres adapt to the queries by a round of expectation and maximisation, and `propagate`
    moves values that are known at some positions to the others. It sees later positions.
    """

    causal = False
    rounds = 1  # of adapting keys

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.prior = nn.Linear(shape.d_model, shape.n_heads)
        size = (shape.n_heads, 1, 1)
        self.precision = nn.Parameter(torch.randn(size) * 0.3)
        # of the priors on the centres of keys and of values, as logs
        self.stiff, self.value_stiff = (
            nn.Parameter(torch.zeros(size)),
            nn.Parameter(torch.zeros(size), requires_grad=False),
        )

    def prepare(self, x: Stream) -> Projected:
        """Add the prior logits, and adapt the keys."""
        given = super().prepare(x)
        given.more["prior"] = self.prior(x).transpose(1, 2)
        return self.adapted(given)

    def adapted(self, given: Projected) -> Projected:
        """Return tensors whose keys have moved towards the queries that they explain."""
        for _ in range(self.rounds):
            stiff, a, w = self.stiff.exp(), self.precision.exp(), self.rows(given, given.every)
            sums = stiff * given.k + a * (w.mT @ given.q)
            given = replace(given, k=sums / (stiff + a * w.sum(2)[..., None]))
        return given

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return logarithms of the joint densities, up to a constant."""
        apart = torch.cdist(given.q[:, :, rows], given.k).square()
        return given.more["prior"][:, :, None] - self.precision.exp() * apart / 2

    def propagate(self, given: Projected, values: Heads, known: Bool[Tensor, " pos"]) -> Projected:
        """Return tensors whose values take in those that are known at some positions."""
        share = self.rows(given, given.every)[:, :, known]
        stiff, a = self.value_stiff.exp(), self.precision.exp()
        sums = stiff * given.v + a * (share.mT @ values[:, :, known])
        return replace(given, v=sums / (stiff + a * share.sum(2)[..., None]))


class QuasiAttention(Rule):
    """Quasi attention (Li et al. 2024, Comateformer, arXiv:2412.07220): tanh(s_ij) and nearness.

    M_ij = tanh(s_ij) sigmoid(-|q_i - k_j|_1 / sqrt(d)), with the sum of absolute differences.
    Adds, deletes or ignores a token by the sign and the size of two affinities.
    """

    signed = True
    row_sum = "any"

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Gate signed affinities by the distance."""
        apart = torch.cdist(given.q[:, :, rows], given.k, p=1) * given.q.shape[-1] ** -0.5
        return self.scores(given, rows).tanh() * torch.sigmoid(-apart) * self.seen(given, rows)


class HashCollisionsAttention(Rule):
    """Hash collisions (Zeng et al. 2021, YOSO, arXiv:2111.09714): (1 - arccos(q . k) / pi)^8.

    The chance that 8 random hyperplanes do not part q and k, both of norm 1; a norm of z
    follows. The expectation of attention that samples keys by hashing.
    """

    planes = 8
    row_sum = "any"
    unit_norm = True
    output_norm = True

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return the chances of visible keys."""
        cosine = (given.q[:, :, rows] @ given.k.mT).clamp(-1 + 1e-6, 1 - 1e-6)
        return (1 - torch.arccos(cosine) / math.pi) ** self.planes * self.seen(given, rows)


class HashSamplesAttention(HashCollisionsAttention):
    """Hash samples (Zeng et al. 2021, YOSO, arXiv:2111.09714): shares of 32 hashes where q meets k.

    Each hash is the side of 8 random hyperplanes; M_ij is the mean of 32 Bernoulli draws, whose
    expectation is `hash_collisions`, and gradients are those of the expectation. Planes are drawn
    once and kept with the weights. Attention to the keys in the buckets of the query.
    """

    drawn = 32

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        drawn = torch.randn(shape.n_heads, self.drawn * self.planes, shape.d_head)
        self.hashes = nn.Parameter(drawn, requires_grad=False)

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Count the hashes on which a row meets a key."""
        power = 2 ** torch.arange(self.planes, device=rows.device)
        q, k = (
            ((x @ self.hashes.mT > 0).unflatten(-1, (self.drawn, -1)) * power).sum(-1)
            for x in (given.q[:, :, rows], given.k)
        )
        met = (q[:, :, :, None] == k[:, :, None]).to(given.q.dtype).mean(-1)
        chance = super().rows(given, rows)
        return met * self.seen(given, rows) + (chance - chance.detach())


class QueryTemperatureAttention(Rule):
    """Selective attention (Zhang et al. 2024, arXiv:2411.12892): softmax_j(t_h(x_i, i) s_ij) t'v_j.

    t = tanh(w_h . x_i) + 1 + sigmoid(a_h) log i, and t' likewise of x_j and j with weights of its
    own; positions are counted from 1, and v here are the values times t'. A query chooses how sharp
    its row is, more so where there are many keys, and a token how much it is heard.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.sharpness, self.loudness = (
            nn.Linear(shape.d_model, shape.n_heads, bias=False) for _ in range(2)
        )
        self.growth = nn.Parameter(torch.randn(2, shape.n_heads, 1))  # of queries, of values

    def prepare(self, x: Stream) -> Projected:
        """Add the temperatures of queries, and apply those of values."""
        given = super().prepare(x)
        place = (1 + given.every).to(x.dtype).log()
        of_query, of_value = (
            torch.tanh(part(x)).transpose(1, 2) + 1 + growth.sigmoid() * place
            for part, growth in zip((self.sharpness, self.loudness), self.growth, strict=True)
        )
        given.more["temperature"], given.v = of_query, given.v * of_value[..., None]
        return given

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Scale each row's scores."""
        return super().scores(given, rows) * given.more["temperature"][:, :, rows, None]


class ScoreConvolutionAttention(Rule):
    """Multi-token (Golovneva et al. 2025, arXiv:2504.00927): scores and heads are convolved.

    s'_ij = sum over a in 0..2 and b in -1..1 of w_h[a, b] s_(i-a)(j-b), with hidden scores as
    0; M_h = sum over the two heads g of a group of u[h, g] softmax(s'_g). A norm of each head and
    the factor 1 - l0 with l0 = 0.8 - 0.6 exp(-0.3 layer) follow. A weight depends on several
    queries, keys and heads at once.
    """

    queries = 3  # earlier queries with the row itself
    side = 1  # keys on each side
    signed = True
    row_sum = "constant"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        kernel = 0.3 * torch.randn(shape.n_heads, self.queries, 2 * self.side + 1)
        kernel[:, 0, self.side] += 1
        self.kernel = nn.Parameter(kernel)
        self.group = 2 if shape.n_heads % 2 == 0 else 1
        size = (shape.n_heads // self.group, self.group, self.group)
        self.behind = nn.Parameter(torch.eye(self.group) + 0.3 * torch.randn(size))
        self.first = 0.8 - 0.6 * math.exp(-0.3 * shape.layer)

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Sum shifted scores of the row and of the rows before it."""
        found = 0.0
        for a in range(self.queries):
            earlier = rows - a
            at = earlier.clamp_min(0)
            real = self.seen(given, at) & (earlier >= 0)[:, None]
            padded = F.pad(super().scores(given, at) * real, (self.side, self.side))
            for b in range(-self.side, self.side + 1):
                shifted = padded[..., self.side - b : self.side - b + len(given.every)]
                found = found + self.kernel[:, a, b + self.side, None, None] * shifted
        return found  # type: ignore[return-value]

    def parts(self, given: Projected) -> dict[str, Callable[[Chosen], MapBlock]]:
        """Return the softmaxes before heads are mixed."""
        return {"unmixed": partial(super().rows, given)}

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Mix the softmaxes within groups of heads."""
        softmaxes = super().rows(given, rows).unflatten(1, (-1, self.group))
        return torch.einsum("nhg,bngij->bnhij", self.behind, softmaxes).flatten(1, 2)

    def after(self, z: Heads, given: Projected) -> Tensor:
        """Normalise each head."""
        return super().after((1 - self.first) * head_norm(z), given)


class HiddenKeysAttention(Rule):
    """Hidden keys (Yan et al. 2021, EL-attention, arXiv:2105.04779): all heads read the states x.

    s_ij = (W_k' W_q x_i) . x_j / sqrt(d): the map of softmax attention without stored keys. One
    cache of states serves all heads; nothing is lost.
    """

    def prepare(self, x: Stream) -> Projected:
        """Move the key matrix to the side of the queries."""
        q, v = self.split(self.query(x)), self.split(self.value(x))
        by_head = self.key.weight.unflatten(0, (self.shape.n_heads, -1))
        shared = x[:, None].expand(-1, self.shape.n_heads, -1, -1)
        return Projected(x, q @ by_head, shared, v)

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return products with the states, scaled by the width of a head."""
        return given.q[:, :, rows] @ given.k.mT * self.shape.d_head**-0.5


class DynamicRoutingAttention(Rule):
    """Dynamic routing (Yoon et al. 2018, arXiv:1808.07383): b_ij grows by v_j . tanh(z_i).

    2 rounds: M = softmax(b), b = 0 at first and z = M v: a row attends to what agrees with its
    own mean. No queries and no keys: agreement of values decides.
    """

    rounds = 2

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        del self.query, self.key

    def prepare(self, x: Stream) -> Projected:
        """Return values in all three places."""
        v = self.split(self.value(x))
        return Projected(x, v, v, v)

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Route a few rounds."""
        seen = self.seen(given, rows)
        logits = given.v.new_zeros(*given.v.shape[:2], len(rows), len(given.every))
        for _ in range(self.rounds):
            z = torch.tanh(masked_softmax(logits, seen) @ given.v)
            logits = logits + z @ given.v.mT
        return masked_softmax(logits, seen)
