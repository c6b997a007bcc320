"""Fewer positions than tokens: maps through landmarks, groups and mixed positions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from interp.core.errors import OptionError
from training.forms.rule import (
    Chosen,
    Heads,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    SeenBlock,
    Stream,
)


class CompressedPositionsAttention(Rule):
    """Linformer (Wang et al. 2020, arXiv:2006.04768): keys and values of E x, fewer than positions.

    z = softmax(q (E k)') (E v) = [softmax(q (E k)') E] v: the map over compressed positions,
    expanded to tokens. It sees later positions; E is cut to the length of the prompt. Rank at
    most the number of compressed positions; E has any sign.
    """

    signed = True
    row_sum = "any"
    causal = False
    slots = 4

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.compress = nn.Parameter(torch.randn(self.slots, shape.length) * self.slots**-0.5)

    def _over_slots(self, given: Projected, rows: Chosen) -> tuple[Tensor, Tensor]:
        """Return the softmax over compressed positions, and E."""
        e = self.compress[:, : len(given.every)]
        scores = given.q[:, :, rows] @ (e @ given.k).mT * given.q.shape[-1] ** -0.5
        return scores.softmax(-1), e

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Expand the map to tokens."""
        weights, e = self._over_slots(given, rows)
        return weights @ e

    def mix(self, given: Projected) -> Heads:
        """Mix compressed values."""
        weights, e = self._over_slots(given, given.every)
        return weights @ (e @ given.v)


class NystromAttention(Rule):
    """Nystroem (Xiong et al. 2021, arXiv:2102.03902): softmax(qk~') softmax(q~k~')^+ softmax(q~k').

    q~ and k~ are means over 4 segments; the pseudoinverse is the paper's iteration of the third
    order, 6 times, and a convolution of the values over 5 positions (33 in the paper) is added per
    head. It sees later positions. Rank at most the number of landmarks, but for the convolution.
    """

    landmarks = 4
    iterations = 6
    side = 2  # positions on each side that the convolution reads
    signed = True
    row_sum = "any"
    causal = False

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        drawn = torch.randn(shape.n_heads, 2 * self.side + 1)
        self.kernel = nn.Parameter(0.3 * drawn)

    def _inverse(self, a: Tensor) -> Tensor:
        """Iterate to the pseudoinverse, from a' over its largest column sum and row sum."""
        one = torch.eye(a.shape[-1], device=a.device, dtype=a.dtype)
        z = a.mT / (a.sum(-1).amax(-1) * a.sum(-2).amax(-1))[..., None, None]
        for _ in range(self.iterations):
            az = a @ z
            z = z @ (13 * one - az @ (15 * one - az @ (7 * one - az))) / 4
        return z

    def _factors(self, given: Projected, rows: Chosen) -> tuple[Tensor, Tensor, Tensor]:
        """Return the three factors of the low-rank part."""
        number = min(self.landmarks, len(given.every))
        q, k = given.q, given.k
        few_q, few_k = (
            F.adaptive_avg_pool1d(t.flatten(0, 1).mT, number).mT.unflatten(0, t.shape[:2])
            for t in (q, k)
        )
        scale = q.shape[-1] ** -0.5
        pairs = ((q[:, :, rows], few_k), (few_q, few_k), (few_q, k))
        left, middle, right = ((a @ b.mT * scale).softmax(-1) for a, b in pairs)
        return left, self._inverse(middle), right

    def parts(self, given: Projected) -> dict[str, Callable[[Chosen], MapBlock]]:
        """Return the low-rank part and the convolution."""

        def through_landmarks(rows: Chosen) -> MapBlock:
            left, middle, right = self._factors(given, rows)
            return left @ middle @ right

        def convolution(rows: Chosen) -> MapBlock:
            gap = given.every - rows[:, None] + self.side
            near = (gap >= 0) & (gap <= 2 * self.side)
            found = self.kernel[:, gap.clamp(0, 2 * self.side)] * near
            return found.expand(len(given.q), -1, -1, -1)

        return {"landmarks": through_landmarks, "convolution": convolution}

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Add the convolution to the product of the factors."""
        both = self.parts(given)
        return both["landmarks"](rows) + both["convolution"](rows)

    def mix(self, given: Projected) -> Heads:
        """Multiply from the right, over which no map is formed, and convolve the values."""
        left, middle, right = self._factors(given, given.every)
        kernel = self.kernel[:, None, :, None]
        near = F.conv2d(given.v, kernel, padding=(self.side, 0), groups=len(kernel))
        return left @ (middle @ (right @ given.v)) + near


class GroupedPositionsAttention(Rule):
    """Grouped positions (Burchi and Vielzeuf 2021, Efficient Conformer, arXiv:2109.01163).

    Pairs of positions are one token of twice the width: M[2 a + o, 2 b + o] = softmax_b(q_a .
    k_b), and 0 between unequal o. It sees later positions; an odd prompt is padded with zeros.
    A map of a quarter of the entries, spread over positions of one place in their group.
    """

    size = 2
    row_sum = "at most 1"
    causal = False

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep positions of the row's place in a group."""
        return rows[:, None] % self.size == given.every % self.size

    def _grouped(self, x: Heads) -> Heads:
        short = -x.shape[2] % self.size
        return F.pad(x, (0, 0, 0, short)).unflatten(2, (-1, self.size)).flatten(3)

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Attend between groups, and spread the weights."""
        q, k = self._grouped(given.q), self._grouped(given.k)
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        found = weights[:, :, rows // self.size][..., given.every // self.size]
        return found * self.seen(given, rows)


class OptimisedAttentionAttention(Rule):
    """Optimised attention (Hosseini and Hosseini 2024, arXiv:2403.01643): values are slices of x.

    M = softmax(q k) as usual; the value projection is left to the output matrix. Three matrices in
    place of four.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        if self.d_out != shape.d_model:
            raise OptionError(
                f"heads that are slices of the input: {shape.n_heads} heads of width"
                f" {shape.d_head} need d_model {self.d_out}, not {shape.d_model}"
            )
        del self.value

    def prepare(self, x: Stream) -> Projected:
        """Return slices of the input as values."""
        return Projected(x, self.split(self.query(x)), self.split(self.key(x)), self.split(x))


class EfficientAttentionAttention(OptimisedAttentionAttention):
    """Efficient attention (Hosseini and Hosseini 2024, arXiv:2403.01643): keys are slices, too.

    M = softmax(q x) with slices of the input as keys and values. Two matrices in place of four.
    """

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        del self.key

    def prepare(self, x: Stream) -> Projected:
        """Return slices of the input as keys and values."""
        return Projected(x, self.split(self.query(x)), self.split(x), self.split(x))


class SuperAttentionAttention(EfficientAttentionAttention):
    """Super attention (Hosseini and Hosseini 2024, arXiv:2403.01643): M = softmax(q x) A.

    Keys and values are slices of the input; A is a learned lower triangular map over positions.
    No projections to keys and values; positions are mixed before they are attended to.
    """

    signed = True
    row_sum = "any"

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        drawn = 0.3 * torch.randn(shape.length, shape.length) * shape.length**-0.5
        self.mixing = nn.Parameter(torch.eye(shape.length) + drawn)

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Attend to mixed positions."""
        length = len(given.every)
        return super().rows(given, rows) @ self.mixing[:length, :length].tril()
