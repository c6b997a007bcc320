"""W_Q, W_K, W_V, W_O of every head, W_E and W_U, located by value without a table of families.

`W_Q`, `W_K`, `W_V` act on the input of the projections (the output of the norm before them); `W_O`
gives the output of the output projection. `folded` includes everything between them and the
residual stream: the norm before (its gain, and its centring for layer norms), the norm or factor
after the output projection (Gemma 2, OLMo 2, Granite, layer scale), and, if the stream is read
through layer norms, the subtraction from `W_O` of the mean, which no reader sees. The divisor of a
norm is a positive number that depends on the token, so folded weights are defined up to that
factor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.errors import UnknownName, UnreadableAttention
from interp.model.calls.call import precise
from interp.model.calls.sites import circuit_sites
from interp.model.hooks.inference import part_output
from interp.model.locate.find_layout import layouts
from interp.model.locate.find_sites import output_projection
from interp.model.locate.layout import (
    FoldStep,
    Layout,
    ReadMatrix,
    stream_read,
    stream_written,
)
from interp.model.locate.linear import LowRank, linear_map
from interp.model.locate.norms import Norm, norm_at, read_norm

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.transformer import Transformer

PARTS = ("qk", "ov", "vocabulary", "pairs")


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """Weights of one attention layer, read from the model on request, in at least float32.

    Keys and values have one matrix per key-value head; `site.kv_head(head)` gives the one that a
    query head reads. Each part raises `UnreadableAttention` with the reason if it is not a single
    matrix.
    """

    site: Site
    module: nn.Module
    layout: Layout
    is_folded: bool = False

    @property
    def folded(self) -> HeadWeights:
        """Weights folded to act directly between residual stream and residual stream."""
        return replace(self, is_folded=True)

    @cached_property
    def W_Q(self) -> Float[Tensor, "head d_model d_head"]:
        """Map from the attention's input to queries."""
        return self._read("q", self.site.n_heads)[0]

    @cached_property
    def W_K(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """Map from the attention's input to keys."""
        return self._read("k", self.site.n_kv_heads)[0]

    @cached_property
    def W_V(self) -> Float[Tensor, "kv_head d_model d_v"]:
        """Map from the attention's input to values."""
        return self._read("v", self.site.n_kv_heads)[0]

    @cached_property
    def b_Q(self) -> Float[Tensor, "head d_head"]:
        """Bias of queries (before their own norm, if they have one)."""
        return self._read("q", self.site.n_heads)[1]

    @cached_property
    def b_K(self) -> Float[Tensor, "kv_head d_head"]:
        """Bias of keys (before their own norm, if they have one)."""
        return self._read("k", self.site.n_kv_heads)[1]

    @cached_property
    def b_V(self) -> Float[Tensor, "kv_head d_v"]:
        """Bias of values."""
        return self._read("v", self.site.n_kv_heads)[1]

    @cached_property
    def W_O(self) -> Float[Tensor, "head d_v d_model"]:
        """Map from a head's z to the output of the output projection."""
        if not self.is_folded:
            if isinstance(self.layout.o, str):
                raise UnreadableAttention(self.layout.o)
            return precise(output_projection(self.module, self.site)[0].detach())
        weight = self.added
        return weight - weight.mean(-1, keepdim=True) if self.stream_centred else weight

    @cached_property
    def added(self) -> Float[Tensor, "head d_v d_model"]:
        """Map from a head's z to the stream, with a norm or factor after the projection.

        The scale of a norm depends on the run and is left out; `head_outputs` has it.
        """
        if isinstance(self.layout.o, str):
            raise UnreadableAttention(self.layout.o)
        weight = self._follow(precise(output_projection(self.module, self.site)[0].detach()))
        return weight if self.layout.o.scale == 1 else weight * self.layout.o.scale

    @cached_property
    def added_bias(self) -> Float[Tensor, "d_model"]:
        """Bias of the output projection, mapped to the stream as `added` is."""
        assert not isinstance(self.layout.o, str)  # read where `added` is
        return self._follow(self.b_O) * self.layout.o.scale

    @cached_property
    def output_norm(self) -> Norm | None:
        """Norm between the output projection and the stream."""
        if isinstance(self.layout.o, str) or self.layout.o.after is None:
            return None
        return read_norm(self.module.get_submodule(self.layout.o.after), self.b_O.shape)

    @cached_property
    def b_O(self) -> Float[Tensor, "d_model"]:
        """Bias of the output projection, which belongs to no head; never folded."""
        weight, bias = output_projection(self.module, self.site)
        if bias is None:
            return torch.zeros(weight.shape[-1], dtype=precise(weight).dtype, device=weight.device)
        return precise(bias.detach())

    @property
    def qk_normed(self) -> bool:
        """True if queries or keys have their own norm: scores hold up to a positive factor."""
        return any(
            isinstance(r, ReadMatrix) and r.own_norm is not None
            for r in (self.layout.q, self.layout.k)
        )

    @property
    def scale(self) -> float:
        """Factor from q·k to the score (1/sqrt(d_head) in most families).

        Raises:
            UnreadableAttention: scores are not a multiple of q·k.
        """
        self.require("qk")
        if self.layout.scale is None:
            raise UnreadableAttention(f"{self.site.name}: scores are not a multiple of q·k")
        return self.layout.scale

    @cached_property
    def stream_centred(self) -> bool:
        """True if every reader subtracts the mean over the stream's entries."""
        if self.layout.readers is None:
            return False
        name, width = self.layout.readers
        return self._norm(name, (width,)).centred

    @cached_property
    def QK(self) -> LowRank:
        """Scores between folded stream vectors at distance zero: `score = x_query QK x_key`."""
        self.require("qk")
        w, scale = self.folded, self.scale
        keys = w.W_K.mT[self._kv_heads()]
        return LowRank(w.W_Q * scale, keys)

    @cached_property
    def OV(self) -> LowRank:
        """Map from the attended input to the head's output: `written = x OV`."""
        self.require("ov")
        w = self.folded
        return LowRank(w.W_V[self._kv_heads()], w.W_O)

    def require(self, circuit: str) -> None:
        """Raise unless a circuit, "qk" or "ov", is a fixed matrix between streams."""
        parts = (
            (self.layout.q, self.layout.k) if circuit == "qk" else (self.layout.v, self.layout.o)
        )
        for part in parts:
            if isinstance(part, str):
                raise UnreadableAttention(part)
        where = f"{self.site.name} ({self.site.module})"
        if circuit == "qk" and self.layout.scale is None:
            raise UnreadableAttention(f"{where}: scores are not a multiple of q·k")
        if circuit == "ov" and self.site.gated:
            raise UnreadableAttention(
                f"{where}: z is gated entry by entry before the output projection, so what a head "
                "writes is not a fixed linear function of what it reads"
            )

    def _kv_heads(self) -> list[int]:
        return [self.site.kv_head(h) for h in range(self.site.n_heads)]

    def _norm(self, name: str, shape: tuple[int, ...]) -> Norm:
        return norm_at(self.module, name, shape)

    def _follow(self, weight: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """Apply the norm, or per-entry factor (layer scale), after the output projection."""
        if isinstance(self.layout.o, str) or self.layout.o.after is None:
            return weight
        if self.output_norm is not None:
            return self.output_norm.follow(weight)
        with torch.no_grad():
            ones = torch.ones(1, 1, weight.shape[-1]).to(weight)
            gain = part_output(self.module.get_submodule(self.layout.o.after), ones)
        return weight * gain.reshape(-1).to(weight)

    def _read(self, part: str, heads: int) -> tuple[Tensor, Tensor]:
        reading = getattr(self.layout, part)
        if isinstance(reading, str):
            raise UnreadableAttention(reading)
        matrix, bias = linear_map(self.module.get_submodule(reading.module), reading.width)
        matrix, columns = precise(matrix), reading.columns
        weight = columns.take(matrix)
        added = columns.offset.to(weight)
        if bias is not None:
            added = added + columns.take(precise(bias))
        if reading.own_norm is not None:
            norm = self._norm(reading.own_norm.module, reading.own_norm.shape)
            weight, added = (reading.own_norm.columns.take(norm.follow(x)) for x in (weight, added))
        if self.is_folded and reading.before is not None:
            before = self._norm(reading.before, (reading.width,))
            added = added + before.bias.to(weight) @ weight
            weight = before.fold(weight)
        return weight.reshape(reading.width, heads, -1).transpose(0, 1), added.reshape(heads, -1)


@dataclass(frozen=True, eq=False)
class Embeddings:
    """W_E into a stream and W_U out of the last one, with the norms and matrices between folded.

    The mean of W_U over the vocabulary is subtracted, since adding a constant to every logit
    changes no probability.
    """

    model: Transformer

    def W_E(self, stream: str = "decoder") -> Float[Tensor, "d_vocab d_model"]:
        """Return each token's contribution to the first stream, without positions."""
        entering = layouts(self.model).vocabulary.entering.get(stream)
        if entering is None or isinstance(entering, str):
            raise UnreadableAttention(entering or f"{self.model.name} has no {stream} stream")
        table: Any = self.model.module.get_submodule(entering.table).weight
        x = precise(table.detach()) * entering.factor
        for step in entering.steps:
            norm = self._norm(step)
            x = norm.follow(x) if norm is not None else x @ self._matrix(step).to(x)
        return x

    @cached_property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        """Map from the last stream to logits."""
        leaving = layouts(self.model).vocabulary.leaving
        if isinstance(leaving, str):
            raise UnreadableAttention(leaving)
        module = self.model.module.get_submodule(leaving.matrix)
        x = precise(linear_map(module, leaving.width)[0])
        for step in reversed(leaving.steps):
            norm = self._norm(step)
            x = norm.fold(x) if norm is not None else self._matrix(step).to(x) @ x
        return x - x.mean(-1, keepdim=True)

    def _norm(self, step: FoldStep) -> Norm | None:
        if step.kind == "matrix":
            return None
        return norm_at(self.model.module, step.module, (step.width,))

    def _matrix(self, step: FoldStep) -> Tensor:
        return linear_map(self.model.module.get_submodule(step.module), step.width)[0]


def head_weights(model: Transformer, site: Site) -> HeadWeights:
    """Return the weights of one attention of a model."""
    return HeadWeights(site, model.module, layouts(model).sites[site])


def embeddings(model: Transformer) -> Embeddings:
    """Return W_E and W_U of a model."""
    return Embeddings(model)


def predicting_sites(model: Transformer) -> list[Site]:
    """Return the attention sites that read token streams and write the stream of the logits.

    The encoder of an encoder-decoder is not included.
    """
    vocabulary = layouts(model).vocabulary
    if isinstance(vocabulary.leaving, str):
        raise UnreadableAttention(vocabulary.leaving)
    last = "decoder" if "decoder" in model.stacks else model.sites[-1].stack
    entering = {
        site: vocabulary.entering.get(stream_read(site, "v")) for site in circuit_sites(model.sites)
    }
    predicting = [
        site
        for site, e in entering.items()
        if stream_written(site) == last and e is not None and not isinstance(e, str)
    ]
    if not predicting:
        reason = next((e for e in entering.values() if isinstance(e, str)), None)
        raise UnreadableAttention(reason or f"{model.name}: no head reads tokens and writes logits")
    return predicting


def composed_pairs(model: Transformer, part: str) -> list[tuple[Site, Site]]:
    """Return pairs of sites where the first writes the stream that `part` of the later reads."""
    sites = circuit_sites(model.sites)
    pairs = [
        (first, later)
        for j, later in enumerate(sites)
        for first in sites[:j]
        if stream_written(first) == stream_read(later, part)
        and (first.layer < later.layer or first.stack != later.stack)
    ]
    if not pairs:
        raise UnreadableAttention(
            f"{model.name} has no two attentions in sequence, so nothing composes"
        )
    return pairs


def why_unreadable(model: Transformer, parts: Iterable[str]) -> str | None:
    """Explain in one line why weights that an analysis needs are not available, or return None."""
    parts = set(parts)
    for part in parts - set(PARTS):
        raise UnknownName("part of the weights", part, PARTS)
    if not parts:
        return None
    layout = layouts(model)
    try:
        sites = circuit_sites(model.sites)
        if not sites:
            raise UnreadableAttention(
                f"{model.name} has no softmax attention ({model.sites[0].kind}), so its heads have "
                "no circuits of queries, keys, values and outputs"
            )
        sites = predicting_sites(model) if "vocabulary" in parts else sites
        if "pairs" in parts:
            composed_pairs(model, "q")
        for site in sites:
            w = HeadWeights(site, model.module, layout.sites[site])
            for circuit in parts & {"qk", "ov"}:
                w.require(circuit)
    except UnreadableAttention as error:
        return f"{model.name}: {error}" if not str(error).startswith(model.name) else str(error)
    return None
