"""Inputs changed before the projections: convolutions, averages and inner attention."""

from __future__ import annotations

from dataclasses import replace

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
    Stream,
)


class ConditionalPositionsAttention(Rule):
    """Conditional positions (Chu et al. 2021, CPVT, arXiv:2102.10882): x + a convolution of x.

    Each channel is convolved over the token and the two before it; softmax attention follows. A
    token knows its place by its neighbours.
    """

    width = 3

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.kernel = nn.Parameter(torch.randn(self.width, shape.d_model) * self.width**-0.5)

    def prepare(self, x: Stream) -> Projected:
        """Add the convolution before the projections."""
        given = super().prepare(x + convolved(x, self.kernel))
        given.x = x
        return given


def convolved(x: Stream, kernel: torch.Tensor) -> Stream:
    """Return sum_a kernel[a] x[t - a] for each channel; zeros stand before the first token."""
    length = x.shape[-2]
    found = torch.zeros_like(x)
    for back, weight in enumerate(kernel):
        if back < length:
            pad = torch.zeros_like(x[..., :back, :])
            found = found + torch.cat([pad, x[..., : length - back, :]], -2) * weight
    return found


class ConvolvedProjectionsAttention(Rule):
    """Convolved projections (Sugiharto et al. 2023, RCMHA, arXiv:2308.03429): depthwise q, k and v.

    Queries, keys and values are convolved over the token and the two before it, and each
    distance has a learned score. A head compares short stretches of tokens.
    """

    width = 3

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (3, self.width, shape.n_heads * shape.d_head)
        self.kernels = nn.Parameter(torch.randn(size) * self.width**-0.5)
        self.bias = nn.Parameter(torch.randn(shape.n_heads, 32))

    def prepare(self, x: Stream) -> Projected:
        """Convolve the three projections."""
        parts = zip((self.query, self.key, self.value), self.kernels, strict=True)
        q, k, v = (self.split(convolved(part(x), kernel)) for part, kernel in parts)
        return Projected(x, q, k, v)

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Add the score of the distance; the last stands for all larger ones."""
        gap = (rows[:, None] - given.every).clamp(0, self.bias.shape[1] - 1)
        return super().scores(given, rows) + self.bias[:, gap]


class MovingAverageAttention(Rule):
    """Moving average (Ma et al. 2022, Mega, arXiv:2209.10655): one head on an average of x.

    y = sum_e c_e h_e, h_e[t] = a_e b_e x[t] + (1 - a_e d_e) h_e[t-1] for two damped averages per
    channel; queries and keys are a scale and an offset of u = silu(W y), values silu(V x), and
    scores have a learned term per distance. The layer adds p * (silu(H y + b + U (r * z)) - x) with
    the gates r = silu(R y) and p = sigmoid(P y), where U is the output matrix. Queries and keys
    know their neighbourhood; two gates choose between attention, average and input.
    """

    averages = 2

    def __init__(self, shape: RuleShape):
        width = shape.n_heads * shape.d_head
        super().__init__(replace(shape, n_heads=1, d_head=width))
        del self.key
        self.average = nn.Parameter(torch.randn(4, self.averages, shape.d_model))  # a, b, c, d
        self.turn = nn.Parameter(torch.stack([torch.ones(2, width), 0.1 * torch.randn(2, width)]))
        self.bias = nn.Parameter(torch.randn(32))
        self.reset = nn.Linear(shape.d_model, width)
        self.update = nn.Linear(shape.d_model, shape.d_model)
        self.hidden = nn.Linear(shape.d_model, shape.d_model)

    def prepare(self, x: Stream) -> Projected:
        """Average before the projection to queries and keys."""
        a, b, damp = (self.average[i].sigmoid() for i in (0, 1, 3))
        back = torch.arange(x.shape[1], device=x.device)[:, None, None]
        y = convolved(x, (self.average[2] * a * b * (1 - a * damp) ** back).sum(1))
        u = F.silu(self.query(y))
        q, k = (self.split(scale * u + offset) for scale, offset in self.turn.transpose(0, 1))
        return Projected(x, q, k, self.split(F.silu(self.value(x))), {"average": y})

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Add the term of the distance; the last stands for all larger ones."""
        gap = (rows[:, None] - given.every).clamp(0, len(self.bias) - 1)
        return super().scores(given, rows) + self.bias[gap]

    def after(self, z: Heads, given: Projected) -> Tensor:
        """Gate the head's output by the average."""
        return F.silu(self.reset(given.more["average"])) * super().after(z, given)

    def finish(self, written: Stream, given: Projected) -> Stream:
        """Add the average, and move from the input towards it by the second gate."""
        y = given.more["average"]
        return self.update(y).sigmoid() * (F.silu(self.hidden(y) + written) - given.x)


class NestedAttention(Rule):
    """Nested attention (Han et al. 2021, Transformer in Transformer, arXiv:2103.00112).

    The 4 slices of a token attend to each other, are added to it, and softmax attention
    follows. An inner attention inside each token comes before the outer one between tokens.
    """

    slices = 4

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        width = shape.d_model // self.slices
        self.inner = nn.Parameter(torch.randn(3, width, width) * width**-0.5)

    def prepare(self, x: Stream) -> Projected:
        """Mix slices within each token first."""
        parts = x.unflatten(-1, (self.slices, -1))
        q, k, v = (parts @ m for m in self.inner)
        mixed = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v
        given = super().prepare(x + mixed.flatten(-2))
        given.x = x
        return given


class FixedPointAttention(Rule):
    """Fixed point (Mathur et al. 2025, Change of Thought, arXiv:2507.13569): attention repeated.

    Queries are W (x + z) with z = softmax(q k) v, from z = 0, repeated until z of a row moves by
    less than 1e-3 of its size or for 32 rounds; M is the map of the last q. Each row stops by
    itself. Gradients are those of the fixed point (implicit differentiation), not of the rounds,
    and no weight is added. The paper can also be read with queries of z alone; here the input
    stays in. Queries take in what they found before the layer writes.
    """

    most = 32  # rounds
    tolerance = 1e-3

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        if self.d_out != shape.d_model:
            raise OptionError(
                f"fixed_point: what {shape.n_heads} heads of width {shape.d_head} find is added to "
                f"the input, so d_model must be {self.d_out}, not {shape.d_model}"
            )

    def _round(self, given: Projected, z: Stream) -> Stream:
        """Attend with queries of the input and of what was found."""
        q = self.split(self.query(given.x + z))
        found = self.rows(replace(given, q=q), given.every) @ given.v
        return found.transpose(1, 2).flatten(2)

    def prepare(self, x: Stream) -> Projected:
        """Repeat the attention until it settles; `rounds` counts how often, per row."""
        given = super().prepare(x)
        with torch.no_grad():
            z, rounds = torch.zeros_like(x), torch.zeros_like(x[..., 0])
            moving = torch.ones_like(x[..., 0], dtype=torch.bool)
            while moving.any() and rounds.max() < self.most:
                new = self._round(given, z)
                rounds += moving
                far = (new - z).norm(dim=-1) > self.tolerance * new.norm(dim=-1)
                z, moving = torch.where(moving[..., None], new, z), far
        given.q = self.split(self.query(x + self._settled(given, z)))
        given.more["rounds"] = rounds
        return given

    def _settled(self, given: Projected, z: Stream) -> Stream:
        """Return the fixed point with its gradient: that of a round, by (1 - J')^-1 as a series.

        The series ends where its terms no longer shrink, where a round is no contraction.
        """
        found = self._round(given, z)
        if not found.requires_grad:
            return z
        start = z.clone().requires_grad_()
        again = self._round(replace(given, x=given.x.detach()), start)

        def series(grad: Stream) -> Stream:
            term = total = grad
            for _ in range(self.most):
                [new] = torch.autograd.grad(again, start, term, retain_graph=True)
                if new.norm() >= term.norm() or new.norm() < 1e-6 * total.norm():
                    break
                term, total = new, total + new
            return total

        found.register_hook(series)
        return found
