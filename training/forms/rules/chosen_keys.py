"""Masks that depend on content: each row, or each head, chooses its keys."""

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
    among_largest,
    masked_softmax,
)


class TopKAttention(Rule):
    """Top-k (Gupta et al. 2021, arXiv:2106.06899): softmax over the 3 largest scores of a row.

    All keys but a few have weight zero.
    """

    kept = 3

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Hide scores below the smallest one that is kept."""
        scores = scores.masked_fill(~seen, -torch.inf)
        return masked_softmax(scores, seen & among_largest(scores, self.kept))


class HardAttention(Rule):
    """Hard attention (Xu et al. 2015, arXiv:1502.03044): all weight on the key of largest score.

    The gradient is that of the softmax (straight through). A row takes one token.
    """

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Return one-hot rows with the gradient of a softmax."""
        soft = masked_softmax(scores, seen)
        hard = F.one_hot(soft.argmax(-1), soft.shape[-1]).to(soft.dtype)
        return hard + (soft - soft.detach())


class ClustersAttention(Rule):
    """Clusters (Roy et al. 2020, routing transformer, arXiv:2003.05997): keys of one cluster.

    Queries and keys belong to the nearest of 4 centres of each head; a row also sees itself. While
    it is trained, each centre moves towards the mean of the queries and of the keys that belong to
    it. The paper's code gives each centre a fixed number of nearest tokens instead, for equal work,
    which sees later positions. The mask depends on the content.
    """

    n_clusters = 4
    kept = 0.95  # of a centre, per pass
    centres: Tensor

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        drawn = torch.randn(shape.n_heads, self.n_clusters, shape.d_head)
        self.register_buffer("centres", F.normalize(drawn, dim=-1))

    def _nearest(self, x: Heads) -> Tensor:
        return (F.normalize(x, dim=-1) @ F.normalize(self.centres, dim=-1).mT).argmax(-1)

    def prepare(self, x: Stream) -> Projected:
        """Move the centres while the model is trained."""
        given = super().prepare(x)
        if self.training:
            self.centres = self.moved(given.q.detach(), given.k.detach())
        return given

    def moved(self, q: Heads, k: Heads) -> Tensor:
        """Return the centres after a pass with these queries and keys."""
        centres = self.centres
        for part in (q, k):
            own = F.one_hot(self._nearest(part), self.n_clusters).to(part).transpose(0, 1)
            own = own.flatten(1, 2).mT
            number = own.sum(-1, keepdim=True)
            mean = own @ F.normalize(part, dim=-1).transpose(0, 1).flatten(1, 2)
            step = (1 - self.kept) / 2 * (mean / number.clamp_min(1) - self.centres)
            centres = centres + step * (number > 0)
        return centres

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep keys of the row's cluster, and the row itself."""
        same = self._nearest(given.q[:, :, rows])[..., None] == self._nearest(given.k)[:, :, None]
        return (same & super().seen(given, rows)) | (given.every == rows[:, None])


class LowRankMaskAttention(Rule):
    """Low-rank mask (Wei et al. 2023, Sparsifiner, arXiv:2303.13755): a narrow product picks keys.

    Products of projections to width 2 predict connections; the 4 largest, and the row itself,
    are kept. A cheap predictor chooses, and full scores weigh.
    """

    kept = 4
    rank = 2

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (2, shape.n_heads, shape.d_model, self.rank)
        self.narrow = nn.Parameter(torch.randn(size), requires_grad=False)

    def prepare(self, x: Stream) -> Projected:
        """Add the narrow queries and keys."""
        given = super().prepare(x)
        given.more["of_row"], given.more["of_key"] = (x[:, None] @ m for m in self.narrow)
        return given

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep keys of the largest predictions."""
        past = super().seen(given, rows)
        found = given.more["of_row"][:, :, rows] @ given.more["of_key"].mT
        found = found.masked_fill(~past, -torch.inf)
        return (among_largest(found, self.kept) | (given.every == rows[:, None])) & past


class EstimatedMaskAttention(Rule):
    """Estimated mask (Lee et al. 2023, SEA, arXiv:2310.01777): keys of a linear estimate.

    Random features estimate each row; its 4 largest estimates, and the row itself, are attended
    to. A linear pass says where to look; only there are scores computed.
    """

    kept = 4
    drawn = 16

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        draws = torch.randn(shape.n_heads, shape.d_head, self.drawn)
        self.draws = nn.Parameter(draws, requires_grad=False)

    def estimate(self, given: Projected, rows: Chosen) -> torch.Tensor:
        """Return estimates of exp(s) up to a factor per row."""
        size = given.q.shape[-1] ** -0.25
        q, k = given.q[:, :, rows] * size @ self.draws, given.k * size @ self.draws
        q, k = (t - t.amax((-1, -2), keepdim=True) for t in (q, k))
        norm = (given.k * size).square().sum(-1, keepdim=True) / 2
        return q.exp() @ (k - norm).exp().mT

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep keys of the largest estimates."""
        past = super().seen(given, rows)
        found = self.estimate(given, rows).masked_fill(~past, -1.0)
        return (among_largest(found, self.kept) | (given.every == rows[:, None])) & past


class RegionRoutingAttention(Rule):
    """Region routing (Zhu et al. 2023, BiFormer, arXiv:2303.08810): 2 regions, then their tokens.

    Regions are 4 positions; a region's mean query chooses the 2 regions of the largest products
    with their mean keys. It sees later positions. Coarse attention between regions decides
    where fine attention looks.
    """

    size = 4
    kept = 2
    causal = False

    def _means(self, x: Heads) -> Heads:
        return torch.stack([part.mean(2) for part in x.split(self.size, 2)], 2)

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep keys of the regions that the row's region chose."""
        affinity = self._means(given.q) @ self._means(given.k).mT
        chosen = among_largest(affinity, self.kept)
        return chosen[:, :, rows // self.size][..., given.every // self.size]


class TokenTypesAttention(Rule):
    """Token types (Deng et al. 2025, NAtS, arXiv:2502.13251): global, local and window tokens.

    A global token is seen by all later rows, a local one until the next global token, and a
    window token by the next 3 rows. The type is the largest of three logits of the token. A
    token decides how long it stays visible.
    """

    width = 4

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.types = nn.Parameter(torch.randn(3, shape.d_model), requires_grad=False)

    def prepare(self, x: Stream) -> Projected:
        """Add the type of each token: 0 global, 1 local, 2 window."""
        given = super().prepare(x)
        given.more["type"] = (x @ self.types.mT).argmax(-1)
        return given

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep tokens that are still visible, and the row itself."""
        kind = given.more["type"][:, None, None]
        count = (given.more["type"] == 0).cumsum(-1)
        same = (count[:, rows, None] == count[:, None, :])[:, None]
        gap = rows[:, None] - given.every
        lasting = (kind == 0) | ((kind == 1) & same) | ((kind == 2) & (gap < self.width))
        return (lasting | (gap == 0)) & (gap >= 0)


class ExpertChoiceAttention(Rule):
    """Expert choice (Piekos et al. 2025, MoSA, arXiv:2505.00315): a head takes 1/4 of the tokens.

    M_ij = r_i softmax_j(s_ij) over chosen i and j, r = sigmoid(w . x); other rows are zero. The
    choice is over the whole prompt, so it sees later positions. Each head has its own few
    tokens, as queries and as keys.
    """

    row_sum = "at most 1"
    causal = False
    share = 4  # one of so many tokens

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.router = nn.Linear(shape.d_model, shape.n_heads)

    def prepare(self, x: Stream) -> Projected:
        """Add the routing weights, and which tokens are chosen."""
        given = super().prepare(x)
        route = self.router(x).sigmoid().transpose(1, 2)
        chosen = among_largest(route, max(1, x.shape[1] // self.share))
        given.more |= {"route": route, "chosen": chosen}
        return given

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep chosen keys of chosen rows."""
        chosen = given.more["chosen"]
        return chosen[:, :, rows, None] & chosen[:, :, None]

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Weight the rows of chosen tokens by their route."""
        keys = given.more["chosen"][:, :, None]
        found = self.weights(self.scores(given, rows), keys.expand(-1, -1, len(rows), -1))
        return found * (given.more["route"] * given.more["chosen"])[:, :, rows, None]


class SparseKAttention(Rule):
    """SparseK (Lou et al. 2024, arXiv:2406.16747): m = clip(u - t, 0, 1) selects 3 keys of a row.

    u is a score per token and t makes m sum to 3; M_ij = m_j softmax_j(s_ij) over keys with m_j
    > 0. A differentiable choice of k keys.
    """

    row_sum = "at most 1"
    k = 3

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.score = nn.Linear(shape.d_model, shape.n_heads, bias=False)

    def prepare(self, x: Stream) -> Projected:
        """Add the score of each token."""
        given = super().prepare(x)
        given.more["u"] = self.score(x).transpose(1, 2)
        return given

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Attend to the selected keys, and weight them by their selection."""
        seen = self.seen(given, rows)
        u = given.more["u"][:, :, None].expand(-1, -1, len(rows), -1)
        chosen = sparse_k(u.masked_fill(~seen, -torch.inf), self.k)
        return masked_softmax(self.scores(given, rows), chosen > 0) * chosen


def sparse_k(u: Tensor, k: int) -> Tensor:
    """Project each row on numbers in [0, 1] with the sum k, or as many as are finite."""
    total = u.isfinite().sum(-1, keepdim=True).clamp(max=k).to(u)
    with torch.no_grad():
        low = u.masked_fill(~u.isfinite(), torch.inf).amin(-1, keepdim=True) - 1
        high = u.amax(-1, keepdim=True)
        for _ in range(60):
            middle = (low + high) / 2
            more = (u - middle).clamp(0, 1).sum(-1, keepdim=True) > total
            low, high = torch.where(more, middle, low), torch.where(more, high, middle)
        whole, part = u - high >= 1, (u - high > 0) & (u - high < 1)
    count = part.sum(-1, keepdim=True)
    over = u.masked_fill(~part, 0).sum(-1, keepdim=True) - (total - whole.sum(-1, keepdim=True))
    exact = torch.where(count > 0, over / count.clamp_min(1), high)
    return torch.where(part, (u - exact).clamp(0, 1), whole.to(u))


class DeltaCorrectionAttention(Rule):
    """Delta correction (Willette et al. 2025, arXiv:2505.11254): sparse plus a dense difference.

    M_i = S_i + D_b - S_b for the last row b <= i that is a multiple of 4; S sees the first 2
    tokens and the last 4, D sees all. Sparse attention borrows the part that it misses from a
    dense row nearby.
    """

    every = 4
    first = 2
    last = 4
    signed = True

    def _sparse(self, given: Projected, rows: Chosen) -> MapBlock:
        gap = rows[:, None] - given.every
        kept = (gap >= 0) & ((gap < self.last) | (given.every < self.first))
        return masked_softmax(self.scores(given, rows), kept)

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Add the difference of the dense row to the sparse ones."""
        base = rows // self.every * self.every
        return self._sparse(given, rows) + super().rows(given, base) - self._sparse(given, base)
