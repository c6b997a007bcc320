"""Fixed masks: which keys a row sees depends on positions alone."""

from __future__ import annotations

import math
import random

import torch
from jaxtyping import Int
from torch import Tensor, nn

from training.forms.rule import (
    Chosen,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    SeenBlock,
    Stream,
    turned_by_place,
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
    """Global and local (Ainslie et al. 2020, ETC, arXiv:2004.08483): s_ij = q_i . (k_j + a[l_ij]).

    The first 2 positions are global: they see all and all see them; the others see 3 positions on
    each side. A learned vector a belongs to each label l: the distance, at most 3 either way, of
    two global or two other tokens; and, between the two kinds, whether the token lies in the
    segment (8 tokens each) that the global token stands for. It sees later positions. Labels carry
    the structure of a long input.
    """

    width = 4
    shared = 2
    segment = 8
    reach = 3
    causal = False

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (shape.n_heads, 2 * self.reach + 3, shape.d_head)
        self.labels = nn.Parameter(torch.randn(size))

    def label(self, given: Projected, rows: Chosen) -> Int[Tensor, "row key_pos"]:
        """Return the label of each pair: distances first, then own segment and other segment."""
        row, key = rows[:, None], given.every
        owner = (torch.stack(torch.broadcast_tensors(row, key)) - self.shared) // self.segment
        owner = owner.clamp_max(self.shared - 1)
        own = torch.where(row < self.shared, row == owner[1], key == owner[0])
        distance = (key - row).clamp(-self.reach, self.reach) + self.reach
        mixed = (row < self.shared) != (key < self.shared)
        return torch.where(mixed, 2 * self.reach + 1 + (~own).long(), distance)

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Add the products of queries and the vectors of labels."""
        q = given.q[:, :, rows] * given.q.shape[-1] ** -0.5
        label = self.label(given, rows).expand(*q.shape[:2], -1, -1)
        return q @ given.k.mT + (q @ self.labels.mT).gather(-1, label)

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep the window and the global tokens."""
        row, key = rows[:, None], given.every
        return ((row - key).abs() < self.width) | (key < self.shared) | (row < self.shared)


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

    The first 16 positions are passages of 8 that do not see each other; later positions see all.
    Keys of a passage are made at the places 0 to 7 and then turned to where the passage stands, so
    passages are computed once and reused in any order; the question reads them together.
    """

    size = 8
    passages = 16
    own_positions = True

    def prepare(self, x: Stream) -> Projected:
        """Encode places within a passage, then the place of the passage."""
        given = super().prepare(x)
        start = given.every.clamp_max(self.passages) // self.size * self.size
        given.q = turned_by_place(given.q, given.every)
        given.k = turned_by_place(turned_by_place(given.k, given.every - start), start)
        return given

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
    """Masked heads (Li et al. 2022, MaiT, arXiv:2207.03006): some heads see neighbours only.

    Positions are patches of a grid of width 4. Every other head sees all patches; those between see
    windows of 3 x 3 and of 5 x 5 patches in turn. Local heads beside global ones, in two
    dimensions; no order of positions.
    """

    width = 4
    reach = (1, 2)  # steps in the grid that the local heads see
    causal = False

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep near patches for even heads, and all for odd ones."""
        down = (rows[:, None] // self.width - given.every // self.width).abs()
        across = (rows[:, None] % self.width - given.every % self.width).abs()
        head = torch.arange(self.shape.n_heads, device=rows.device)[:, None, None]
        reach = torch.tensor(self.reach, device=rows.device)[head // 2 % len(self.reach)]
        return (torch.maximum(down, across) <= reach) | (head % 2 == 1)


GOLDEN = (1 + math.sqrt(5)) / 2


def wythoff(row: int, max_length: int, *, modified: bool = False) -> list[int]:
    """Return the terms of a row of the Wythoff array, counted from 1, up to a number.

    The modified array begins each row two terms earlier.
    """
    n = math.floor(row * GOLDEN)
    terms = [math.floor(n * GOLDEN), math.floor(n * GOLDEN**2)]
    if modified:
        terms = [2 * terms[0] - terms[1], terms[1] - terms[0], *terms]
    while terms[-1] <= max_length:
        terms.append(terms[-2] + terms[-1])
    return [t for t in terms if t <= max_length]


class FibonacciAttention(Rule):
    """Fibottention (Rahimian et al. 2024, arXiv:2406.19391): distances of a Fibonacci sequence.

    A head sees itself and the distances of a row of the modified Wythoff array (0, 1, 1, 2, 3 ..;
    1, 3, 4, 7 ..; 2, 4, 6, 10 ..), up to a window that grows from 5 with the first row to a third
    of the longest sequence with the last. Which head has which row is drawn anew in each layer.
    Each head looks back at distances of its own; without the two earlier terms no distance belongs
    to two heads.
    """

    least = 5  # window of the first row
    allowed: Tensor

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        allowed = torch.zeros(shape.n_heads, shape.length, dtype=torch.bool)
        allowed[:, 0] = True
        more = max(0, shape.length // 3 - self.least) / max(1, shape.n_heads - 1)
        order = random.Random(shape.layer).sample(range(shape.n_heads), shape.n_heads)
        for head, row in enumerate(order):
            window = min(self.least + int(more * row), shape.length - 1)
            allowed[head, wythoff(row + 1, window, modified=True)] = True
        self.register_buffer("allowed", allowed)

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep keys at the head's distances."""
        gap = rows[:, None] - given.every
        return self.allowed[:, gap.clamp_min(0)] & (gap >= 0)
