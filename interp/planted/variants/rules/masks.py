"""Fixed masks: which keys a row sees depends on positions alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from interp.planted.variants.rule import (
    Chosen,
    Projected,
    Rule,
    RuleShape,
    SeenBlock,
)


class WindowAttention(Rule):
    """Window (Beltagy et al. 2020, Longformer, arXiv:2004.05150): softmax over the last 4.

    A row sees itself and the positions just before it.
    """

    width = 4  # positions, the row itself included

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Hide what lies before the window."""
        gap = rows[:, None] - given.every
        return (gap >= 0) & (gap < self.width)


class BothWaysAttention(Rule):
    """Both ways (Devlin et al. 2018, BERT, arXiv:1810.04805): softmax over all positions.

    What forms that see later positions, too, are compared with.
    """

    causal = False


class DilatedAttention(Rule):
    """Dilated window (Beltagy et al. 2020, Longformer, arXiv:2004.05150): every other of 8.

    A row sees itself and each second position before it.
    """

    width = 8
    step = 2

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep distances that are even and small."""
        gap = rows[:, None] - given.every
        return (gap >= 0) & (gap < self.width) & (gap % self.step == 0)


class StridedAttention(Rule):
    """Strided (Child et al. 2019, sparse transformer, arXiv:1904.10509): last 4, then each fourth.

    A local window, and columns at a fixed distance from one another.
    """

    stride = 4

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep the window and the distances that the stride divides."""
        gap = rows[:, None] - given.every
        return (gap >= 0) & ((gap < self.stride) | (gap % self.stride == 0))


class GlobalLocalAttention(Rule):
    """Global and local (Ainslie et al. 2020, ETC, arXiv:2004.08483): last 4 and first 2 tokens.

    A local window, and tokens that all rows see.
    """

    width = 4
    shared = 2

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep the window and the global tokens."""
        gap = rows[:, None] - given.every
        return (gap >= 0) & ((gap < self.width) | (given.every < self.shared))


class BlocksAttention(Rule):
    """Block-local (Qiu et al. 2019, arXiv:1911.02972): softmax within blocks of 8 positions.

    No row sees another block.
    """

    size = 8

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep earlier positions of the row's block."""
        same = rows[:, None] // self.size == given.every // self.size
        return same & (given.every <= rows[:, None])


class SentinelTokensAttention(Rule):
    """Sentinel tokens (Ren et al. 2023, arXiv:2310.08152): spans of 8 are read by their last token.

    A row sees its own span, and of each span before it the last position. One token stands for
    a span whose keys and values can be dropped.
    """

    span = 8

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep the row's span, and sentinels of those before."""
        same = rows[:, None] // self.span == given.every // self.span
        return (same | (given.every % self.span == self.span - 1)) & (given.every <= rows[:, None])


class IndependentBlocksAttention(Rule):
    """Independent blocks (Ma et al. 2024, Block-Attention, arXiv:2409.15355): passages apart.

    The first 16 positions are passages of 8 that do not see each other; later positions see
    all. Passages can be computed once and reused; the question reads them together.
    """

    size = 8
    passages = 16

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep the row's passage, or all earlier positions after the passages."""
        same = rows[:, None] // self.size == given.every // self.size
        return (same | (rows[:, None] >= self.passages)) & (given.every <= rows[:, None])


class CandidateBlocksAttention(Rule):
    """Candidate blocks (Song et al. 2021, Uni-Encoder, arXiv:2106.01263): candidates and context.

    The first 8 positions are the context, which sees itself; blocks of 4 after it see the
    context and themselves, and no other block. Many candidates share one context and do not
    know of each other.
    """

    context = 8
    size = 4
    causal = False

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep the context and the row's own block."""
        of_row = (rows[:, None] - self.context).div(self.size, rounding_mode="floor")
        of_key = (given.every - self.context).div(self.size, rounding_mode="floor")
        return (given.every < self.context) | (of_row == of_key)


class MaskedHeadsAttention(Rule):
    """Masked heads (Li et al. 2022, MaiT, arXiv:2207.02866): some heads see neighbours only.

    Positions are patches of a grid of width 4; even heads see the patches at most one step
    away. Local heads beside global ones, in two dimensions; no order of positions.
    """

    width = 4
    causal = False

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep near patches for even heads, and all for odd ones."""
        down = (rows[:, None] // self.width - given.every // self.width).abs()
        across = (rows[:, None] % self.width - given.every % self.width).abs()
        near = torch.maximum(down, across) <= 1
        local = torch.arange(self.shape.n_heads, device=rows.device) % 2 == 0
        return near | ~local[:, None, None]


GOLDEN = (1 + math.sqrt(5)) / 2


def wythoff(row: int, max_length: int) -> list[int]:
    """Return the terms of a row of the Wythoff array, counted from 1, up to a number."""
    n = math.floor(row * GOLDEN)
    terms = [math.floor(n * GOLDEN), math.floor(n * GOLDEN**2)]
    while terms[-1] <= max_length:
        terms.append(terms[-2] + terms[-1])
    return [t for t in terms if t <= max_length]


class FibonacciAttention(Rule):
    """Fibottention (Rahimian et al. 2024, arXiv:2406.19391): distances of a Fibonacci sequence.

    Head h sees the distance 0 and those of row h + 1 of the Wythoff array: 1, 2, 3, 5 ..; 4, 7,
    11 .. Each head looks back at distances that no other head has.
    """

    allowed: Tensor

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        allowed = torch.zeros(shape.n_heads, shape.length, dtype=torch.bool)
        allowed[:, 0] = True
        for head in range(shape.n_heads):
            allowed[head, wythoff(head + 1, shape.length - 1)] = True
        self.register_buffer("allowed", allowed)

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep keys at the head's distances."""
        gap = rows[:, None] - given.every
        return self.allowed[:, gap.clamp_min(0)] & (gap >= 0)
