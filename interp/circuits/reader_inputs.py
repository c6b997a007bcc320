"""Inputs of the readers of a residual graph when its edges carry the values of two runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from interp.causal.game.replay import Reuse, Wanted
from interp.circuits.node_outputs import NodeOutputs
from interp.circuits.output_norm import OutputNorm
from interp.circuits.residual_graph import Reader, ResidualGraph
from interp.circuits.stream_hooks import Watch

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from interp.attribution.roles import NormRole

_FEW = 4  # writers per group up to which adding them one by one is faster
_AT_ONCE = 2**25  # largest number of elements of all groups' inputs together


@dataclass(eq=False)
class ReaderGroup:
    """Readers that read the same input."""

    mask: Float[Tensor, "copy writer"]
    readers: list[Reader]


class MixedRuns(Protocol):
    """Two recorded runs, and what a forward pass that mixes them reads (see `EdgeForward`)."""

    graph: ResidualGraph
    base: NodeOutputs
    other: NodeOutputs
    wanted: Wanted | None
    reuse: Reuse
    outputs: dict[str, Any]


class _Written(dict[int, "Tensor"]):
    """Outputs of writers by number; those of a run for writers that have none."""

    def __init__(self, out: Float[Tensor, "batch pos writer d_model"]) -> None:
        super().__init__()
        self.out = out

    def __missing__(self, writer: int) -> Tensor:
        return self.out[None, :, :, writer]


class ReaderInputs(Watch):
    """The part of a forward pass under masks that mixes what writers write for each reader.

    Attributes:
        live: Outputs of writers in this run, `[copy or 1, batch, pos, d_model]`, by number; those
            of the base run before a writer has run.
        freezing: True while the norms in `norms` keep their scales, or the copies in which they do.
    """

    def __init__(
        self,
        edges: MixedRuns,
        mask: Float[Tensor, "copy reader writer"],
        norms: Mapping[nn.Module, tuple[NormRole, Tensor]],
    ) -> None:
        self.edges, self.graph, self.mask = edges, edges.graph, mask
        self.copies, self.norms = len(mask), norms
        self.freezing: Bool[Tensor, " copy"] | bool = False
        out = edges.base.out
        self.live: dict[int, Tensor] = _Written(out)

    def _inputs(
        self, groups: list[ReaderGroup], live: Tensor
    ) -> Iterator[tuple[ReaderGroup, Float[Tensor, "row pos d_model"]]]:
        """Yield the input of each group, given the residual stream of this run."""
        if not groups:
            return
        from_live, changed = self._changed(groups)
        weights = torch.stack([1 - g.mask if from_live else -g.mask for g in groups])
        for norm in self.graph.norms:
            changed[norm.heads] = False
        wanted = changed.nonzero().flatten().tolist()
        sums = self._sums(groups, weights, wanted, live if from_live else None)
        yield from self._with_norms(sums, weights, from_live)

    def _changed(self, groups: list[ReaderGroup]) -> tuple[bool, Bool[Tensor, " writer"]]:
        """Return True if inputs are made from this run's stream, and the writers that change it."""
        ones = torch.stack([g.mask.ne(0).any(0) for g in groups]).any(0)
        zeros = torch.stack([g.mask.ne(1).any(0) for g in groups]).any(0)
        from_live = int(zeros.sum()) <= int(ones.sum())
        return from_live, zeros if from_live else ones

    def _recorded(
        self, groups: Mapping[int, list[ReaderGroup]], writers: int, *, every: bool
    ) -> Bool[Tensor, " writer"]:
        """Return the writers whose outputs some group reads one by one, or all of them."""
        recorded = torch.full((writers,), every)
        for some in groups.values():
            for kind in dict.fromkeys(g.readers[0].kind for g in some):
                changed = self._changed([g for g in some if g.readers[0].kind == kind])[1].cpu()
                recorded[: len(changed)] |= changed
        return recorded

    def _sums(
        self,
        groups: list[ReaderGroup],
        weights: Float[Tensor, "group copy writer"],
        wanted: list[int],
        live: Tensor | None,
    ) -> Iterator[tuple[ReaderGroup, Float[Tensor, "row pos d_model"]]]:
        """Yield each group's start with the weighted changes of writers that enter as they are."""
        other, batch = self.edges.other, self.edges.base.out.shape[0]
        start = (
            other.read(groups[0].readers[0])[None]
            if live is None
            else live.reshape(self.copies, batch, *live.shape[1:])
        )
        steps = [other.out[None, :, :, u] - self.live[u] for u in wanted]
        at_once = max(1, _AT_ONCE // start.numel())
        if self.copies == 1 and int(weights[..., wanted].ne(0).sum()) > _FEW * len(groups):
            # masks of a whole circuit: groups differ in many writers
            flat = torch.cat(steps).flatten(1)
            for first in range(0, len(groups), at_once):
                some = groups[first : first + at_once]
                changes = weights[first : first + at_once, 0][:, wanted] @ flat
                for group, x in zip(some, changes, strict=True):
                    yield group, start[0] + x.reshape(start.shape[1:])
            return
        for group, weight in zip(groups, weights, strict=True):
            total = start.expand(self.copies, *start.shape[1:]).clone()
            for u, step in zip(wanted, steps, strict=True):
                if bool(weight[:, u].any()):
                    total += weight[:, u][:, None, None, None] * step
            yield group, total.flatten(0, 1)

    def _with_norms(
        self,
        sums: Iterator[tuple[ReaderGroup, Float[Tensor, "row pos d_model"]]],
        weights: Float[Tensor, "group copy writer"],
        from_live: bool,
    ) -> Iterator[tuple[ReaderGroup, Float[Tensor, "row pos d_model"]]]:
        """Add what changes in sums of heads that enter through a norm, computed by it again."""
        reads = [x for x in self.graph.norms if x.heads.start < weights.shape[-1]]
        each = [self._through(norm, weights[:, :, norm.heads], from_live) for norm in reads]
        for group, x in sums:
            changes = [change for change in map(next, each) if change is not None]
            yield group, sum(changes, x)

    def _through(
        self, norm: OutputNorm, weights: Float[Tensor, "group copy head"], from_live: bool
    ) -> Iterator[Float[Tensor, "row pos d_model"] | None]:
        """Yield by group the change of what a layer adds; None where its heads are as they were."""
        numbers, moved = range(norm.heads.start, norm.heads.stop), weights.requires_grad
        touched = weights.ne(0).any(2).any(1).tolist()
        if not any(touched) and not moved:
            yield from [None] * len(weights)
            return
        live = torch.stack([self.live[u] for u in numbers], 3)
        other = self.edges.other.out[None, :, :, norm.heads]
        start = (live if from_live else other).sum(3)
        steps = (other - live).expand(self.copies, *live.shape[1:])
        before, at_once = self._added(norm, start), max(1, _AT_ONCE // start.numel())
        for first in range(0, len(weights), at_once):
            chosen = [
                i for i in range(first, min(first + at_once, len(weights))) if touched[i] or moved
            ]
            if chosen:
                total = start + torch.einsum("gch,cbphd->gcbpd", weights[chosen], steps)
                after = self._added(norm, total)
            for i in range(first, min(first + at_once, len(weights))):
                yield (after[chosen.index(i)] - before).flatten(0, 1) if i in chosen else None

    def _added(
        self, norm: OutputNorm, total: Float[Tensor, "*at batch pos d_model"]
    ) -> Float[Tensor, "*at batch pos d_model"]:
        """Return what a layer's attention adds, with its norm held where norms are."""
        self.freezing = bool(self.norms)
        try:
            return norm.added(total.flatten(0, -3)).reshape(total.shape)
        finally:
            self.freezing = False
