"""Measures of attention layers on prompts: one layer's call at a time, nothing of all layers.

A measure receives a `Layer` for prompts of one length without padding. What is as large as a
pattern is visited in blocks of rows (`Layer.blocks`) or computed by the kernels (`Layer.reduce`);
queries, keys, values and outputs are linear in the number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import InterpError, PromptError, UnreadableAttention
from interp.core.prompts import Prompts
from interp.heads.declaration import BoundAnalysis
from interp.heads.outliers.passes import equal_lengths, reduced, seen_by, sees
from interp.model.hooks.calls import Call, repeat_kv
from interp.model.locate.sites import Site
from interp_kernels.reductions import Reduction

if TYPE_CHECKING:
    from interp.model.model import Model

BLOCK = 2**21  # weights of a block of rows (16 MiB in float64)


class RowBlock(NamedTuple):
    """Some rows of a pattern: their indices, the weights, and which keys they see."""

    rows: slice
    pattern: Float[Tensor, "prompt head row key"]
    visible: Bool[Tensor, "prompt #head row key"]


@dataclass(eq=False)
class Layer:
    """One attention call on prompts of equal length.

    Args:
        site: the attention.
        call: its run.
        engine: "stored" keeps a whole pattern; with others it is visited in blocks of rows.
        previous: the attention before it in the same stack, if it read as many tokens.
        W_O: map from a head's output to the residual stream, for measures that require "ov".
        turns: maps from the queries ("q") and keys ("k") that enter the scores back to the
            projections, at every position.
    """

    site: Site
    call: Call
    engine: str = "stored"
    previous: Layer | None = None
    W_O: Float[Tensor, "head d_v d_model"] | None = None
    turns: Mapping[str, Tensor] = field(default_factory=dict)
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
        for rows in self._slices():
            visible = self.call.visible(rows)
            yield RowBlock(rows, self.call.pattern(rows).double() * visible, visible)

    def _slices(self) -> Iterator[slice]:
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


def lacking(requires: Sequence[str], site: Site, model: Model) -> str | None:
    """Return the property that an attention lacks for a measure, or None."""
    before = [s for s in model.sites if s.stack == site.stack and s.layer < site.layer]
    has = {
        "qk": site.has_qk,
        "self": site.stack != "cross",
        "heads": site.n_heads > 1,
        "previous": bool(before),
        "ov": not site.gated,
        "turns": site.has_qk and len({s.stack for s in model.sites}) == 1 and model.takes_text,
    }
    said = {
        "qk": "scores from one product of queries and keys",
        "self": "queries and keys of the same tokens",
        "heads": "several heads in a layer",
        "previous": "an attention before it in the same stack",
        "ov": "an output matrix without gates before it",
        "turns": "one stack of tokens with scores from one product of queries and keys",
    }
    return next((said[x] for x in requires if not has[x]), None)


def why_unmeasurable(model: Model, metric: BoundAnalysis) -> str | None:
    """Return the reason why a measure cannot be computed on any attention of a model, or None."""
    requires = metric.analysis.requires
    lacks = [lacking(requires, site, model) for site in model.sites]
    if all(lacks):
        return f"{metric.label} needs {lacks[0]}, which {model.name} has nowhere"
    try:
        if "ov" in requires:
            _written(model)
        if "turns" in requires:
            _turns(model, 4)
    except InterpError as error:
        return f"{metric.label}: {error}"
    return None


def measure_layers(
    model: Model,
    prompts: Prompts | Mapping[str, Tensor],
    metrics: Sequence[BoundAnalysis],
    batch_size: int,
    engine: str,
) -> dict[str, dict[Site, np.ndarray]]:
    """Compute measures on every attention of a model, in one forward pass per batch.

    Prompts of one length are run together, so that none is padded.

    Args:
        model: the model to run.
        prompts: the prompts, or a mapping of input tensors.
        metrics: measures with their options.
        batch_size: prompts per forward pass.
        engine: "stored" keeps the pattern of one layer; others visit it in blocks of rows.

    Returns:
        Per metric and attention the values `[prompt, head]`.

    Raises:
        PromptError: given tensors hold padding.
        NonFiniteError: NaN or infinity in an attention output; the layer is named.
    """
    asked = {s: [m for m in metrics if not lacking(m.analysis.requires, s, model)]
             for s in model.sites}  # fmt: skip
    found: dict[str, dict[Site, np.ndarray]] = {m.label: {} for m in metrics}
    needs = {x for m in metrics for x in m.analysis.requires}
    whole = prompts if isinstance(prompts, Prompts) else None
    size = len(whole) if whole else len(next(iter(prompts.values())))  # type: ignore[union-attr]
    written = _written(model) if "ov" in needs else {}
    longest = max(map(len, whole.ids)) if whole else 0
    turning = _turns(model, longest) if "turns" in needs and whole else {}
    parts = equal_lengths(whole, batch_size) if whole else [(list(range(size)), prompts)]
    for which, batch in parts:
        last: dict[str, Layer] = {}

        def visit(
            site: Site, call: Call, real: Tensor,
            which: list[int] = which, last: dict[str, Layer] = last,
        ) -> None:  # fmt: skip
            model.require_finite(call, site)
            if not bool(real.all()):
                raise PromptError(
                    f"{model.name}: the given tensors hold padding, which measures of layers do "
                    f"not read; give texts, ids or Prompts"
                )
            before = last.get(site.stack)
            if before is not None and before.call.z.shape[:3:2] != call.z.shape[:3:2]:
                before = None
            turns = {p: turning[site, p] for p in ("q", "k") if (site, p) in turning}
            layer = Layer(site, call, engine, before, written.get(site), turns)
            for metric in asked[site]:
                values = metric.measured(layer).detach().cpu()
                if len(values) != len(which):  # windows of one image are parts of one item
                    values = values.unflatten(0, (len(which), -1)).nanmean(1)
                kept = found[metric.label].setdefault(site, np.full((size, site.n_heads), np.nan))
                kept[which] = values.numpy()
            last[site.stack] = Layer(site, call, engine)

        model.read(batch, visit, last=1, streamed=engine != "stored")
    return found


def _written(model: Model) -> dict[Site, Tensor]:
    """Return the map from each head's output to the stream, of attentions without gates."""
    return {s: model.weights_of(s).added.double() for s in model.sites if not s.gated}


def _turns(model: Model, tokens: int) -> dict[tuple[Site, str], Tensor]:
    """Return the maps from queries and keys back to the projections at the first positions."""
    from interp.model.locate.turning import turns

    found = turns(model, model.inputs(Prompts(((0,) * tokens,))))
    return {at: torch.linalg.inv(turn.double()) for at, turn in found.items()}
