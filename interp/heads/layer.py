"""One attention layer on prompts of one length without padding, as measures read it.

What is as large as a pattern is visited in blocks of rows (`LayerCall.blocks`) or computed by the
kernels (`LayerCall.reduce`); queries, keys, values and outputs are linear in the number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import PromptError, UnreadableAttention
from interp.heads.one_call import reduced, seen_by, sees
from interp.model.calls.call import Call, repeat_kv
from interp.model.calls.sites import Site
from interp.model.locate.head_outputs import head_outputs
from interp_kernels.reductions import Reduction

if TYPE_CHECKING:
    from interp.model.locate.weights import HeadWeights

BLOCK = 2**21  # weights of a block of rows (16 MiB in float64)


class RowBlock(NamedTuple):
    """Some rows of a pattern: their indices, the weights, and which keys they see."""

    rows: slice
    pattern: Float[Tensor, "prompt head row key"]
    visible: Bool[Tensor, "prompt #head row key"]


@dataclass(eq=False)
class LayerCall:
    """One attention call on prompts of equal length.

    Args:
        site: the attention.
        call: its run.
        engine: "stored" keeps a whole pattern; with others it is visited in blocks of rows.
        previous: the attention before it in the same stack, if it read as many tokens.
        writing: weights by which heads write to the stream, for measures that require "ov".
        turns: maps from the queries ("q") and keys ("k") that enter the scores back to the
            projections, at every position.
        segments: of measures that require "segments", what each key stands for, `[prompt, key]`,
            as a number of `interp.model.segments.SEGMENTS`.
        terms: of measures that require "terms", what is added to the scores and depends on the
            queries ("content_to_position") or on the keys ("position_to_content").
    """

    site: Site
    call: Call
    engine: str = "stored"
    previous: LayerCall | None = None
    writing: HeadWeights | None = None
    turns: Mapping[str, Tensor] = field(default_factory=dict)
    segments: Tensor | None = None
    terms: Mapping[str, Tensor] = field(default_factory=dict)
    block: int | None = None

    @property
    def heads(self) -> int:
        """Number of query heads."""
        return self.call.n_heads

    @property
    def tokens(self) -> int:
        """Number of queries."""
        return self.call.z.shape[2]

    @cached_property
    def q(self) -> Float[Tensor, "prompt head token d_head"]:
        """Queries that enter the scores."""
        return self._part(self.call.q, "queries")

    @cached_property
    def k(self) -> Float[Tensor, "prompt head token d_head"]:
        """Keys that enter the scores, repeated for the query heads that share them."""
        return repeat_kv(self._part(self.call.k, "keys"), self.heads)

    @cached_property
    def v(self) -> Float[Tensor, "prompt head token d_v"]:
        """Values, repeated for the query heads that share them."""
        return repeat_kv(self.call.v.double(), self.heads)

    @cached_property
    def z(self) -> Float[Tensor, "prompt head token d_v"]:
        """Outputs of the heads before the output projection."""
        return self.call.z.double()

    def added(self, last: int | None = None) -> Float[Tensor, "prompt token head d_model"]:
        """Compute what each head adds to the stream at the last tokens, or at all of them."""
        assert self.writing is not None  # of measures that require "ov"
        z = self.z.transpose(1, 2)[:, slice(None) if last is None else slice(-last, None)]
        return head_outputs(self.writing, z).added(z)

    @cached_property
    def sees(self) -> Float[Tensor, "prompt #head query"]:
        """Number of keys that each query sees."""
        return sees(self.call)

    @cached_property
    def seen_by(self) -> Float[Tensor, "prompt #head key"]:
        """Number of queries that see each key."""
        return seen_by(self.call)

    def before_turning(self, part: str) -> Float[Tensor, "prompt head token d_head"]:
        """Return queries ("q") or keys ("k") as projected, before rotary embedding."""
        x = self.q if part == "q" else self.k
        if part not in self.turns:
            raise PromptError(
                f"{self.site.name}: positions are not known for given tensors; give texts, ids or "
                f"Prompts"
            )
        turn = self.turns[part][:, : x.shape[2]]
        if len(turn) == 1:
            return torch.einsum("bhtd,tde->bhte", x, turn[0])
        return torch.einsum("bhtd,htde->bhte", x, turn)

    def reduce(self, reduction: Reduction) -> Any:
        """Compute a reduction of the pattern with the kernels of the engine."""
        return reduced(self.call, reduction, self.engine)

    def blocks(self) -> Iterator[RowBlock]:
        """Yield the pattern in blocks of rows, in float64; the whole pattern if it is stored."""
        for rows in self.slices():
            visible = self.call.visible(rows)
            yield RowBlock(rows, self.call.pattern(rows).double() * visible, visible)

    def slices(self) -> Iterator[slice]:
        """Yield the rows of a block at a time."""
        prompts, heads, keys = self.call.z.shape[0], self.heads, self.call.v.shape[2]
        fit = self.tokens if self.engine == "stored" else max(1, BLOCK // (prompts * heads * keys))
        size = self.block or fit
        for start in range(0, self.tokens, size):
            yield slice(start, min(start + size, self.tokens))

    def _part(self, x: Tensor | None, what: str) -> Tensor:
        if x is None:
            raise UnreadableAttention(f"{self.site.name} has no {what} that alone give its scores")
        return x.double()


def mean_of_rows(
    rows: Float[Tensor, "prompt head row"], counts: Tensor
) -> Float[Tensor, "prompt head"]:
    """Return the mean over the rows that count; NaN where none does."""
    return torch.where(counts.expand_as(rows), rows, torch.nan).nanmean(-1)
