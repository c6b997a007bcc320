"""A rule of attention: what stands between a layer's input and its heads' outputs, as linear maps.

A rule projects the input to queries, keys and values, and gives for each head the matrix M whose
product with the values is the head's output z. `mix` is the definition of the paper, such as a
recurrence; `rows` gives rows of M. Both are compared whenever a model is loaded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from interp.core.errors import OptionError

Heads: TypeAlias = Float[Tensor, "batch head pos d_head"]
Stream: TypeAlias = Float[Tensor, "batch pos d_model"]
Chosen: TypeAlias = Int[Tensor, " row"]
MapBlock: TypeAlias = Float[Tensor, "batch head row key_pos"]
SeenBlock: TypeAlias = Bool[Tensor, "*#axes row key_pos"]


@dataclass(frozen=True)
class RuleShape:
    """Sizes of a layer: `n_heads` heads of width `d_head`, and the longest sequence."""

    d_model: int
    n_heads: int
    d_head: int
    length: int
    layer: int = 0


@dataclass(eq=False)
class Projected:
    """Tensors of one forward that a rule's map depends on; `v` is what the map multiplies."""

    x: Stream
    q: Heads
    k: Heads
    v: Heads
    more: dict[str, Tensor] = field(default_factory=dict)
    grid: tuple[int, int] = (1, 1)  # rows and columns of patches, of an image

    @property
    def every(self) -> Chosen:
        """Indices of all rows."""
        return torch.arange(self.x.shape[1], device=self.x.device)

    @property
    def keys(self) -> Chosen:
        """Indices of all keys: of a source, or of the rows' own sequence."""
        return torch.arange(self.v.shape[2], device=self.x.device)


class Rule(nn.Module):
    """Softmax attention; rules derive from it and override what they change.

    Attributes:
        signed: whether entries of the map can be negative.
        row_sum: "1", "at most 1", "constant" (one number per head), "absolute 1" or "any".
        causal: whether a row has only its own and earlier positions.
        unit_norm: whether queries and keys are scaled to norm 1.
        output_norm: whether each head's output is divided by its root mean square.
        own_positions: whether it encodes positions itself, so that the model adds none.
    """

    signed: ClassVar[bool] = False
    row_sum: ClassVar[str] = "1"
    causal: ClassVar[bool] = True
    unit_norm: ClassVar[bool] = False
    output_norm: ClassVar[bool] = False
    own_positions: ClassVar[bool] = False

    def __init__(self, shape: RuleShape):
        super().__init__()
        self.shape = shape
        width = shape.n_heads * shape.d_head
        self.query = nn.Linear(shape.d_model, width, bias=False)
        self.key = nn.Linear(shape.d_model, width, bias=False)
        self.value = nn.Linear(shape.d_model, width, bias=False)

    @property
    def d_out(self) -> int:
        """Width of all heads' outputs together."""
        return self.shape.n_heads * self.shape.d_head

    def split(self, x: Float[Tensor, "batch pos width"]) -> Heads:
        """Give the heads an axis of their own."""
        return x.unflatten(-1, (-1, self.shape.d_head)).transpose(1, 2)

    def prepare(self, x: Stream) -> Projected:
        """Return queries, keys and values."""
        q, k, v = (self.split(part(x)) for part in (self.query, self.key, self.value))
        if self.unit_norm:
            q, k = (F.normalize(t, dim=-1) for t in (q, k))
        return Projected(x, q, k, v)

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return the scaled products of queries and keys."""
        return given.q[:, :, rows] @ given.k.mT * given.q.shape[-1] ** -0.5

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Return the keys that the rows may take from."""
        if self.causal:
            return given.every <= rows[:, None]
        return torch.ones(len(rows), len(given.every), dtype=torch.bool, device=rows.device)

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Return the rows that scores give."""
        return masked_softmax(scores, seen)

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return rows of the map."""
        return self.weights(self.scores(given, rows), self.seen(given, rows))

    def mix(self, given: Projected) -> Heads:
        """Return the heads' outputs z."""
        return self.rows(given, given.every) @ given.v

    def rest(self, given: Projected) -> Heads | None:
        """Return what z holds of no token, such as a memory; None if nothing."""
        return None

    def parts(self, given: Projected) -> dict[str, Callable[[Chosen], MapBlock]]:
        """Return maps that the map combines, by name."""
        return {}

    def after(self, z: Heads, given: Projected) -> Float[Tensor, "batch pos d_out"]:
        """Return the input of the output projection: norms and gates act here."""
        z = head_norm(z) if self.output_norm else z
        return z.transpose(1, 2).flatten(2)

    def finish(self, written: Stream, given: Projected) -> Stream:
        """Return what the layer adds to the stream, from the output of its projection."""
        return written


class FeatureRule(Rule, ABC):
    """M[i, j] = phi(q_i) . phi(k_j) / sum over visible l of phi(q_i) . phi(k_l)."""

    least: ClassVar[float] = 1e-6  # added to the sum

    @abstractmethod
    def feature(self, x: Heads, given: Projected) -> Tensor:
        """Return phi of queries or keys."""

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return rows of the normalised products."""
        q, k = self.feature(given.q, given), self.feature(given.k, given)
        products = (q[:, :, rows] @ k.mT) * self.seen(given, rows)
        return products / (products.sum(-1, keepdim=True) + self.least)

    def mix(self, given: Projected) -> Heads:
        """Return the quotient of two running sums, over which no map is formed."""
        q, k = self.feature(given.q, given), self.feature(given.k, given)
        states = (k[..., :, None] * given.v[..., None, :]).cumsum(2)
        total = (q * k.cumsum(2)).sum(-1, keepdim=True) + self.least
        return (q[..., None, :] @ states)[..., 0, :] / total


def masked_softmax(scores: MapBlock, seen: SeenBlock) -> MapBlock:
    """Return the softmax over visible keys."""
    return scores.masked_fill(~seen, -torch.inf).softmax(-1)


def over_sum(found: MapBlock) -> MapBlock:
    """Divide each row by its sum."""
    return found / found.sum(-1, keepdim=True)


def among_largest(x: Float[Tensor, "*row item"], k: int) -> Bool[Tensor, "*row item"]:
    """Mark the k largest items of each row, and those that equal the smallest of them."""
    return x >= x.topk(min(k, x.shape[-1]), -1).values[..., -1:]


def turned_by_place(x: Heads, places: Int[Tensor, " pos"]) -> Heads:
    """Turn pairs of features by the place times 10000^(-2 c / d): products know distances."""
    if x.shape[-1] % 2:
        raise OptionError(f"rotary positions need heads of even width, not {x.shape[-1]}")
    half = x.shape[-1] // 2
    rate = 10000.0 ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    angle = places[:, None] * rate
    a, b = x.split(half, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def head_norm(z: Heads, eps: float = 1e-6) -> Heads:
    """Divide each head's output by its root mean square."""
    return z * torch.rsqrt(z.square().mean(-1, keepdim=True) + eps)
