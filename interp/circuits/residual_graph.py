"""The residual stream as a graph of the components that write to it and read from it.

Writers, in the order in which they write: `embed` (the first stream, positions included), every
head (`L0H3`), every MLP (`mlp0`). Readers: the three inputs of every head (`L0H3.q`, `.k`, `.v`),
every MLP (`mlp0`) and `logits`. A reader reads the sum of all writers before it, and of constants
(biases) that belong to no writer. Where a norm follows the output projection (`OutputNorm`), a
head writes its part of the sum that the norm reads, and a reader reads the norm of the sum. With
grouped-query attention every query head has its own inputs: `L0H3.k` is the key as head 3 uses it.
A head of a state-space or linear layer, or of gated attention, has one input, `L0H3`: the layer is
run on what this head reads, and the head's columns of what enters the output projection are taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from interp.core.errors import OptionError, UnknownName, UnreadableAttention

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from torch import Tensor

    from interp.circuits.output_norm import OutputNorm
    from interp.model.calls.sites import Site
    from interp.model.locate.head_outputs import HeadOutputs
    from interp.model.model import Model

PARTS = ("q", "k", "v")
Part = Literal["q", "k", "v"]


@dataclass(frozen=True)
class Reader:
    """Input of a head's queries, keys or values, of an MLP, or of the unembedding."""

    name: str
    kind: Literal["head", "mlp", "logits"]
    order: int  # number of the graph's layer, from 0; the number of layers for the logits
    head: int = -1
    part: str = ""
    n_before: int = 0  # number of writers it reads: always the first ones

    @property
    def node(self) -> str:
        """The node that reads: `L0H3` for `L0H3.q`."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, eq=False)
class Layer:
    """One block: its attention, whether it has an MLP, and the module through which the MLP reads.

    `middle` is None where the MLP reads the stream that enters the block, in parallel to attention.
    `norm` is the module through which the sum of the heads enters the stream, if there is one.
    """

    order: int
    site: Site
    block: str
    has_mlp: bool
    middle: str | None
    norm: str | None = None

    @property
    def whole(self) -> bool:
        """True if a head has one input: a map of another kind than a softmax, or a gated output."""
        return self.site.kind != "softmax" or not self.site.has_qk or self.site.gated

    @property
    def parallel(self) -> bool:
        """True if attention and MLP run in parallel."""
        return self.has_mlp and self.middle is None


@dataclass(frozen=True, eq=False)
class ResidualGraph:
    """Writers and readers of one model; create it by `ResidualGraph.of(model)`."""

    model: Model
    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, model: Model) -> ResidualGraph:
        """Build the graph of a model."""
        if len(model.stacks) != 1:
            raise UnreadableAttention(
                f"{model.name} has the stacks {', '.join(model.stacks)}; a residual graph "
                "needs a model with one stream (score heads, which need no graph)"
            )
        return cls(model, tuple(_layer(model, i, site) for i, site in enumerate(model.sites)))

    @cached_property
    def writers(self) -> tuple[str, ...]:
        """Names of all writers, in the order in which they write."""
        names = ["embed"]
        for layer in self.layers:
            names += [f"L{layer.site.layer}H{h}" for h in range(layer.site.n_heads)]
            names += [f"mlp{layer.site.layer}"] if layer.has_mlp else []
        return tuple(names)

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each writer."""
        return {name: i for i, name in enumerate(self.writers)}

    @cached_property
    def readers(self) -> tuple[Reader, ...]:
        """All readers, in the order in which they read."""
        ordered: list[Reader] = []
        n = 1
        for layer in self.layers:
            number, before = layer.site.layer, n
            ordered += [
                Reader(f"L{number}H{h}{part and '.'}{part}", "head", layer.order, h, part, before)
                for h in range(layer.site.n_heads)
                for part in (("",) if layer.whole else PARTS)
            ]
            n += layer.site.n_heads
            if layer.has_mlp:
                reads = before if layer.parallel else n
                ordered.append(Reader(f"mlp{number}", "mlp", layer.order, n_before=reads))
                n += 1
        ordered.append(Reader("logits", "logits", len(self.layers), n_before=n))
        return tuple(ordered)

    @cached_property
    def reader_index(self) -> dict[str, int]:
        """The number of each reader."""
        return {r.name: i for i, r in enumerate(self.readers)}

    @cached_property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Every existing (writer, reader) pair, readers in their order."""
        return tuple((w, r.name) for r in self.readers for w in self.writers[: r.n_before])

    def order_of(self, site: Site) -> int:
        """Return the number of the graph's layer that an attention belongs to."""
        return self._orders[site]

    @cached_property
    def _orders(self) -> dict[Site, int]:
        return {layer.site: layer.order for layer in self.layers}

    @cached_property
    def outputs(self) -> dict[int, HeadOutputs]:
        """By layer, the map from the outputs (z) of its heads to what they write."""
        return {layer.order: self.head_outputs(layer) for layer in self.layers}

    def head_outputs(self, layer: Layer) -> HeadOutputs:
        """Return the map from the outputs (z) of a layer's heads to what they write."""
        from interp.model.locate.head_outputs import (
            head_outputs,
            outputs_before_norm,
            writing_weights,
        )

        weights = writing_weights(self.model, layer.site)
        if layer.norm is not None:
            return outputs_before_norm(weights)
        return head_outputs(weights, None, gated=True)

    @cached_property
    def scales(self) -> dict[Site, float | None]:
        """The factor between products of queries and keys and scores, None where it is unknown."""
        from interp.model.locate.find_layout import layouts

        return {x.site: layouts(self.model).sites[x.site].scale for x in self.layers}

    @cached_property
    def norms(self) -> tuple[OutputNorm, ...]:
        """The norms through which the sums of heads enter the stream."""
        from interp.attribution.roles import NormRole
        from interp.circuits.output_norm import OutputNorm
        from interp.model.locate.head_outputs import writing_weights

        norms = []
        for layer in self.layers:
            if layer.norm is None:
                continue
            weights = writing_weights(self.model, layer.site)
            norm, writing = weights.output_norm, weights.layout.o
            assert norm is not None
            assert not isinstance(writing, str)
            role = NormRole(layer.norm, norm, (norm.width,))
            module = self.model.module.get_submodule(layer.norm)
            heads, bias = self.heads_of(layer), self.head_outputs(layer).bias
            norms.append(OutputNorm(layer.order, heads, module, role, bias, writing.scale))
        return tuple(norms)

    def norm_notes(self, how: str = "it is computed again for every patch") -> tuple[str, ...]:
        """Return the remark that heads are added through a norm, and what is done with it."""
        if not self.norms:
            return ()
        count = f"in {len(self.norms)} of {len(self.layers)} layers"
        return (f"{count} the sum of the heads is added to the stream through a norm: {how}",)

    def changes(
        self, new: Float[Tensor, "batch pos writer d_model"], old: Tensor
    ) -> Float[Tensor, "batch pos writer d_model"]:
        """Return the change of the stream at each writer when every writer writes `new`.

        The change of a sum that enters through a norm stands at the last of its heads.
        """
        import torch

        changes = new - old
        for norm in self.norms:
            with torch.no_grad():
                added = [norm.added(x[:, :, norm.heads].sum(2)) for x in (new, old)]
            changes[:, :, norm.heads] = 0
            changes[:, :, norm.heads.stop - 1] = added[0] - added[1]
        return changes

    def changes_alone(
        self, new: Float[Tensor, "batch pos writer d_model"], old: Tensor
    ) -> Float[Tensor, "batch pos writer d_model"]:
        """Return the change of the stream when one writer at a time writes `new`."""
        import torch

        changes = new - old
        for norm in self.norms:
            total = old[:, :, norm.heads].sum(2, keepdim=True)
            with torch.no_grad():
                exchanged = norm.added(total + changes[:, :, norm.heads])
                changes[:, :, norm.heads] = exchanged - norm.added(total)
        return changes

    def heads_of(self, layer: Layer) -> slice:
        """Return the slice of writers that are the heads of a layer."""
        first = self.index[f"L{layer.site.layer}H0"]
        return slice(first, first + layer.site.n_heads)

    def readers_of(self, name: str) -> tuple[Reader, ...]:
        """Return the readers of a node (`L0H3`: three), or the one reader of that name."""
        if name not in self._readers_by_name:
            raise UnknownName("reader", name, [r.name for r in self.readers])
        return self._readers_by_name[name]

    @cached_property
    def _readers_by_name(self) -> dict[str, tuple[Reader, ...]]:
        by_name: dict[str, tuple[Reader, ...]] = {}
        for reader in self.readers:
            for name in dict.fromkeys((reader.name, reader.node)):
                by_name[name] = (*by_name.get(name, ()), reader)
        return by_name

    def writer(self, name: str) -> int:
        """Return the number of a writer."""
        if name not in self.index:
            raise UnknownName("writer", name, self.writers)
        return self.index[name]

    def mask(self, edges: object) -> Float[Tensor, "reader writer"]:
        """Make a mask of 1 at the given edges; a reader `L0H3` means all three of its inputs."""
        import torch

        mask, places = torch.zeros(len(self.readers), len(self.writers)), []
        for writer, reader in edges:  # type: ignore[attr-defined]
            w = self.writer(writer)
            for r in self.readers_of(reader):
                if w >= r.n_before:
                    raise OptionError(
                        f"there is no edge {writer} -> {reader}: {reader} reads before"
                        f" {writer} writes"
                    )
                places.append((self.reader_index[r.name], w))
        if places:
            rows, columns = zip(*places, strict=True)
            mask[list(rows), list(columns)] = 1
        return mask

    @cached_property
    def exists(self) -> Bool[Tensor, "reader writer"]:
        """True at every edge that exists."""
        return self.full().bool()

    def full(self) -> Float[Tensor, "reader writer"]:
        """Make a mask that is 1 at every edge that exists."""
        import torch

        n = torch.tensor([r.n_before for r in self.readers])
        return (torch.arange(len(self.writers)) < n[:, None]).float()


def _layer(model: Model, order: int, site: Site) -> Layer:
    from interp.model.locate.find_layout import layouts
    from interp.model.locate.head_outputs import writing_weights

    where = f"{site.name} ({site.module})"
    streams = site.streams
    missing = [n for n in ("resid_pre", "resid_post", "attn_out") if n not in streams]
    if missing:
        raise UnreadableAttention(
            f"{where}: no {', '.join(missing)} was found in its block, so its stream is not a "
            "plain sum of what attention and MLP write; patch heads, which needs no graph"
        )
    if any(w.run for w in streams.values()) or site.run:
        raise UnreadableAttention(f"{where}: its block runs several times (shared layers)")
    pre, mid = streams["resid_pre"], streams.get("resid_mid")
    has_mlp = "mlp_out" in streams
    if has_mlp and mid is not None and mid.side != "in":
        raise UnreadableAttention(
            f"{where}: a norm makes the stream after attention (post-norm), so what heads write "
            "is not part of the sum that later layers read; patch heads, which needs no graph"
        )
    writing = layouts(model).sites[site].o
    if isinstance(writing, str):
        raise UnreadableAttention(writing)
    middle = mid.module if has_mlp and mid is not None else None
    normed = writing_weights(model, site).output_norm is not None
    return Layer(order, site, pre.module, has_mlp, middle, writing.after if normed else None)
