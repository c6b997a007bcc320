"""Queries, keys and values made in another way than by a projection of each head."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.forms.rule import (
    Heads,
    Projected,
    Rule,
    RuleShape,
    Stream,
)


class MultiQueryAttention(Rule):
    """Multi-query (Shazeer 2019, arXiv:1911.02150): all heads share one key and one value.

    Heads differ in their queries and their output matrices only.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.key, self.value = (nn.Linear(shape.d_model, shape.d_head, bias=False) for _ in "kv")


class TiedKeysValuesAttention(Rule):
    """Tied keys and values (one projection for both): z_i = sum_j softmax_j(q_i . k_j) k_j.

    Keys and values are the same vectors.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        del self.value

    def prepare(self, x: Stream) -> Projected:
        """Use keys as values."""
        k = self.split(self.key(x))
        return Projected(x, self.split(self.query(x)), k, k)


class LatentAttention(Rule):
    """Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434): keys, values of one vector.

    c = W x; k_h = U_h c, v_h = V_h c. The rotary part of the keys is left out. Keys and values
    of all heads come from one narrow projection.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        narrow = max(1, shape.d_model // 4)
        self.latent = nn.Linear(shape.d_model, narrow, bias=False)
        self.key, self.value = (nn.Linear(narrow, self.d_out, bias=False) for _ in "kv")

    def prepare(self, x: Stream) -> Projected:
        """Project down, and up again."""
        c = self.latent(x)
        q, k, v = self.query(x), self.key(c), self.value(c)
        return Projected(x, self.split(q), self.split(k), self.split(v))


class HeadEmbeddingsAttention(Rule):
    """Head embeddings (Xue and Aletras 2023, arXiv:2310.07911): one projection, a vector per head.

    q_h = W_q x + e_h, k_h = W_k x + f_h, v_h = W_v x + g_h. Heads are one projection seen from
    different offsets.
    """

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


class KnockingHeadsAttention(Rule):
    """Knocking heads (Zhou et al. 2025, arXiv:2510.23052): maps and an MLP shared by all heads.

    q_h = T W_q,h x, k_h likewise, and v_h = ((v U) * 2 sigmoid(v G)) D with v = W_v,h x; T, U and D
    start near the identity and G near 0. Features of all heads pass through the same small
    network, by which the heads are trained together. The form without the gate is v = v U D.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        width = shape.d_head
        drawn = 0.3 * width**-0.5 * torch.randn(5, width, width)
        self.shared = nn.Parameter(torch.eye(width) + drawn[:4])  # of q, of k, U and D
        self.gate = nn.Parameter(drawn[4])

    def prepare(self, x: Stream) -> Projected:
        """Apply the shared maps to each head."""
        given = super().prepare(x)
        of_q, of_k, up, down = self.shared
        given.q, given.k = given.q @ of_q, given.k @ of_k
        given.v = ((given.v @ up) * 2 * (given.v @ self.gate).sigmoid()) @ down
        return given


class OverlappingHeadsAttention(Rule):
    """Overlapping heads (Zhang and Wang 2024, arXiv:2410.14874): features shared by neighbours.

    Head h has its own features of queries, keys and values and one more on each side of them.
    Outputs of all heads are wider than the model.
    """

    shared = 1  # features of the neighbour on each side

    @property
    def d_out(self) -> int:
        """Width with the shared features."""
        return self.shape.n_heads * (self.shape.d_head + 2 * self.shared)

    def split(self, x: Tensor) -> Heads:
        """Cut overlapping pieces; zeros stand beside the first and the last head."""
        width = self.shape.d_head
        return (
            F.pad(x, (self.shared, self.shared))
            .unfold(-1, width + 2 * self.shared, width)
            .transpose(1, 2)
        )


class WeightedGroupsAttention(Rule):
    """Weighted groups (Chinnakonduru and Mohapatra 2024, arXiv:2407.10855): weighted means of keys.

    Two heads share k = a_1 W_1 x + a_2 W_2 x, and values likewise, with learned weights.
    Grouped queries whose keys and values are learned mixtures of those of the heads.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.size = 2 if shape.n_heads % 2 == 0 else 1
        drawn = torch.randn(2, shape.n_heads, 1, 1)
        self.share = nn.Parameter(1 / self.size + 0.3 * drawn)

    def _grouped(self, x: Heads, share: torch.Tensor) -> Heads:
        groups = (x * share).unflatten(1, (-1, self.size)).sum(2)
        return groups.repeat_interleave(self.size, 1)

    def prepare(self, x: Stream) -> Projected:
        """Mix keys and values within groups."""
        given = super().prepare(x)
        given.k, given.v = (
            self._grouped(t, share) for t, share in zip((given.k, given.v), self.share, strict=True)
        )
        return given


class QuantisedKeysAttention(Rule):
    """Quantised keys (Lingle 2023, Transformer-VQ, arXiv:2309.16354): each key is its nearest code.

    M[i, j] = softmax_j(q_i . c(k_j)) with 8 learned codes per head; gradients pass straight
    through. Keys of one code have equal weight.
    """

    n_codes = 8

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.codes = nn.Parameter(torch.randn(shape.n_heads, self.n_codes, shape.d_head))

    def prepare(self, x: Stream) -> Projected:
        """Replace keys by codes."""
        given = super().prepare(x)
        nearest = (given.k[..., None, :] - self.codes[:, None]).square().sum(-1).argmin(-1)
        heads = torch.arange(self.shape.n_heads, device=x.device)[:, None]
        code = self.codes[heads, nearest]
        given.k = code + (given.k - given.k.detach())
        return given
