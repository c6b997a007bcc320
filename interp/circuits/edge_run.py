"""One forward pass in which the edges of a residual graph carry the values of one of two runs.

A writer that no reader reads from this run (a node that is patched as a whole) is replaced where it
writes. For every other mixture of the two runs, a block is run again on each distinct input of its
readers, and interrupted as soon as they have been read. What need not be computed is left out
(`unrun_parts`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from interp.causal.game.patching import tiled
from interp.circuits.attention_parts import attention_tensors, set_parts
from interp.circuits.distinct_inputs import DistinctInputs
from interp.circuits.node_outputs import z_of_heads
from interp.circuits.reader_inputs import MixedRuns, ReaderGroup
from interp.circuits.residual_graph import Layer, Reader
from interp.circuits.stream_hooks import replace_first, replaced_blocks, watched
from interp.circuits.unrun_parts import UnrunParts
from interp.core.errors import UnreadableAttention
from interp.core.interrupts import holding
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.hooks.inference import in_this_thread
from interp.model.locate.find_sites import first_tensor
from interp.model.locate.head_outputs import HeadOutputs

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from interp.attribution.roles import NormRole


class _Stop(Exception):
    """Signal that a block was run as far as needed."""


class EdgeRun(UnrunParts):
    """Forward pass under masks; it ends after the layer `until`, if one is given."""

    def __init__(
        self,
        edges: MixedRuns,
        mask: Float[Tensor, "copy reader writer"],
        norms: Mapping[nn.Module, tuple[NormRole, Tensor]],
        *,
        in_place: bool = False,
        whole: bool = True,
        until: int | None = None,
    ) -> None:
        super().__init__(edges, mask, norms)
        self.until, self.whole = until, whole
        self.gone = torch.zeros(len(mask), edges.base.out.shape[2], dtype=torch.bool)
        if in_place:
            self.gone = ((mask == 0).cpu() | ~self.graph.exists).all(1)
            index = self.graph.index
            writers_read = [index.get(reader.node, -1) for reader in self.graph.readers]
            never = torch.zeros(len(mask), 1, dtype=torch.bool)  # the logits are no writer
            # what a replaced node reads, and who reads it, needs no input of its own
            idle = (
                torch.cat([self.gone, never], 1)[:, writers_read][:, :, None] | self.gone[:, None]
            )
            self.mask = mask.masked_fill(idle.to(mask.device), 1.0)
        self.groups = self._groups()
        read_alone = in_place and not self.graph.norms
        # writers whose outputs in this run are read one by one
        self.recorded = self._recorded(self.groups, self.gone.shape[1], every=not read_alone)
        self.start = min([*self.groups, *self._layers_of_gone()], default=len(self.graph.layers))
        self.mode = "live"
        self.found: Any = None
        # by copies of which it is exchanged: a query, key or value; z in whole layers
        self.parts: dict[int, dict[Reader, list[tuple[Any, Tensor]]]] = {}
        self.mlps: dict[int, Tensor] = {}
        self.outputs: dict[int, HeadOutputs] = {}
        self.unread = self.gone.all(0)

    def _layers_of_gone(self) -> set[int]:
        """Return the numbers of the layers in which a writer is replaced."""
        gone = self.gone.any(0)
        orders = {x.order for x in self.graph.layers if bool(gone[self._writers(x)].any())}
        return orders | {0} if bool(gone[0]) else orders

    def _groups(self) -> dict[int, list[ReaderGroup]]:
        by_order: dict[int, dict[bytes, ReaderGroup]] = defaultdict(dict)
        exists = self.graph.exists.to(self.mask.device)
        changed = ((self.mask != 1) & exists).flatten(2).any(2).any(0)
        for i in changed.nonzero().flatten().tolist():
            reader = self.graph.readers[i]
            mask = self.mask[:, i, : reader.n_before]
            key = reader.kind.encode() + mask.cpu().contiguous().numpy().tobytes()
            group = by_order[reader.order].setdefault(key, ReaderGroup(mask, []))
            group.readers.append(reader)
        return {order: list(groups.values()) for order, groups in by_order.items()}

    def _replaced(self, writer: int, x: Tensor) -> Tensor:
        """Return the output of one writer, with the other run's where that writer is replaced."""
        gone = self.gone[:, writer]
        if not bool(gone.any()):
            return x
        where = gone.to(x.device)[:, None, None, None]
        other = self.edges.other.out[None, :, :, writer].to(x)
        return torch.where(where, other, self._shaped(x)).flatten(0, 1)

    # --- blocks ---------------------------------------------------------------------------------

    @holding
    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Make the model's forward pass this run, within a `with` block."""
        with ExitStack() as stack:
            self.outputs = self.graph.outputs  # found before hooks would see it
            for norm in self.norms:
                stack.callback(norm.register_forward_hook(in_this_thread(self._norm)).remove)
            stack.enter_context(watched(self.graph, self))
            self._restrict(stack)
            stack.enter_context(self._only_read())
            among, fused = self._read()
            stack.enter_context(
                replaced_blocks(self.graph, self._block, self._visit, among, fused=fused)
            )
            with suppress(_Stop):  # after the layer `until`
                yield

    def _block(self, layer: Layer, own: Callable[..., Any]) -> Callable[..., Any]:
        groups = self.groups.get(layer.order, [])
        heads = [g for g in groups if g.readers[0].kind == "head"]
        beside = [g for g in groups if g.readers[0].kind == "mlp"] if layer.parallel else []
        ends = self.groups.get(len(self.graph.layers), [])
        last = layer.order == len(self.graph.layers) - 1

        def forward(*args: Any, **kwargs: Any) -> Any:
            given = first_tensor(args)
            x = first_tensor(kwargs) if given is None else given
            assert x is not None
            if layer.order < self.start:
                out = self._skipped(layer, own, args, kwargs)
            elif bool(self.unread[self._writers(layer)].all()):
                out = self._replaced_block(layer, x, own, args, kwargs)
            else:
                self._read_heads(layer, heads, x, own, (args, kwargs))
                for group, read in self._inputs(beside, x):
                    given = replace_first((args, kwargs), x, read)
                    self.mlps[layer.order] = self._until("mlp", own, given, group)
                out = own(*args, **kwargs)
            if layer.order == self.until:
                raise _Stop
            if last and ends:
                left = first_tensor(out)
                assert left is not None
                for group, read in self._inputs(ends, left):
                    out = replace_first(out, left, read)
                    self.freezing = self._held(group)  # to the end: only the final norm remains
            return out

        return forward

    def _read_heads(
        self,
        layer: Layer,
        groups: list[ReaderGroup],
        x: Tensor,
        own: Callable[..., Any],
        given: tuple[tuple, dict],
    ) -> None:
        """Run a block on the exchanged inputs of its heads, and keep what each contributes."""
        inputs, every = self._inputs(groups, x), slice(None)
        at_once = DistinctInputs(self.copies, x, given, partial(self._until, "heads", own))
        able = any(g.mask.ne(1).any() for g in groups) and not self.mask.requires_grad
        if able and not layer.whole and at_once.fits():
            self.parts[layer.order] = at_once.read(inputs)
            return
        for group, read in inputs:
            result = self._until("heads", own, replace_first(given, x, read), group)
            for reader in group.readers:
                z = z_of_heads(layer, result) if layer.whole else getattr(result, reader.part)
                part = self._shaped(z[:, :, reader.head] if layer.whole else z[:, reader.head])
                self.parts.setdefault(layer.order, {})[reader] = [(every, part.clone())]

    def _until(
        self,
        mode: str,
        own: Callable[..., Any],
        given: tuple[tuple, dict],
        group: ReaderGroup | None = None,
    ) -> Any:
        """Run a block on the input of a group until its attention, or its MLP, has been read."""
        self.mode, self.freezing = mode, self._held(group)
        try:
            own(*given[0], **given[1])
        except _Stop:
            parts, self.found = self.found, None
            return parts
        finally:
            self.mode, self.freezing = "live", False
        raise UnreadableAttention(
            f"{self.graph.model.name}: a block ran without its inputs being read"
        )

    def _held(self, group: ReaderGroup | None) -> Bool[Tensor, " copy"] | bool:
        """Return the copies in which the norm before a group keeps its scale: those it exchanges.

        Without a group all copies at hand are exchanged.
        """
        return group.mask.ne(1).any(1) if self.norms and group is not None else bool(self.norms)

    def _norm(self, module: nn.Module, args: tuple, output: Tensor) -> Tensor | None:
        if self.freezing is False:
            return None
        role, scale = self.norms[module]
        x = args[0]
        rows = tiled(scale, x.shape[0] // scale.shape[0])
        new = (rows * role.direction(x) + role.norm.bias.to(x).reshape(role.shape)).to(x.dtype)
        if self.freezing is True:
            return new
        where = self.freezing.reshape(-1, *[1] * x.dim())
        return torch.where(where, self._shaped(new), self._shaped(output)).flatten(0, 1)

    # --- hooks ----------------------------------------------------------------------------------

    def _visit(self, site: Site, call: Call, real: Tensor) -> None:
        if self.mode == "mlp" or self.graph.layers[self.graph.order_of(site)].whole:
            return
        if self.mode == "heads":
            self.found = attention_tensors(call, site)
            raise _Stop
        order = self.graph.order_of(site)
        by_reader = self.parts.get(order)
        if by_reader:
            actual = attention_tensors(call, site)
            changed = {
                part: getattr(actual, part).clone()
                for part in dict.fromkeys(reader.part for reader in by_reader)
            }
            for reader, parts in by_reader.items():
                for copies, part in parts:
                    self._shaped(changed[reader.part])[copies, :, reader.head] = part
            parts = replace(actual, **changed)
            set_parts(self.graph.model, site, call, parts, self.graph.scales[site])

    def _shaped(self, x: Tensor) -> Tensor:
        return x.unflatten(0, (self.copies, -1))

    def pre(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Replace the embeddings where no reader reads them from this run."""
        if layer.order or self.mode != "live" or not bool(self.gone[:, 0].any()):
            return None
        new = self._replaced(0, x)
        self.live[0] = self._shaped(new)
        return new

    def heads(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Record the output of each head in this run, and replace what is replaced as a whole."""
        if self.mode == "heads" and layer.whole:
            self.found = x.clone()
            raise _Stop
        if self.mode != "live":
            return None
        first, n = self.graph.heads_of(layer).start, layer.site.n_heads
        gone = self.gone[:, first : first + n]
        new = None
        if layer.whole and (by_reader := self.parts.get(layer.order)):
            x = new = x.clone()
            for reader, [(_, z)] in by_reader.items():
                z_of_heads(layer, new)[:, :, reader.head] = z.flatten(0, 1)
        if bool(gone.any()):
            width = gone.repeat_interleave(x.shape[-1] // n, 1).to(x.device)[:, None, None]
            x = torch.where(width, self.edges.other.z[layer.order][None].to(x), self._shaped(x))
            x = new = x.flatten(0, 1)
        if bool(self.recorded[first : first + n].any()):
            out = self._shaped(self.outputs[layer.order].added(z_of_heads(layer, x)))
            for h in range(n):
                self.live[first + h] = out[:, :, :, h]
        return new

    def mid(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Return the input of the MLP of a sequential block, in place of the residual stream."""
        if self.mode != "live":
            return None
        groups = [g for g in self.groups.get(layer.order, []) if g.readers[0].kind == "mlp"]
        for group, read in self._inputs(groups, x):
            self.freezing = self._held(group)
            return read
        return None

    def mlp(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Record the output of an MLP in this run, and replace it where its input was patched.

        Where the MLP runs at some positions only, the output at the others is 0.
        """
        shape = (self.copies * self.edges.base.out.shape[0], self.edges.base.out.shape[1])
        if tuple(x.shape[:2]) == shape:
            return self._of_mlp(layer, x)
        assert self.edges.wanted is not None
        rows = self.edges.wanted.copies(self.copies).unique()
        full = x.new_zeros(shape[0] * shape[1], x.shape[-1])
        full[rows] = x[0]
        new = self._of_mlp(layer, full.reshape(*shape, -1))
        return None if new is None else new.flatten(0, 1)[rows]

    def _of_mlp(self, layer: Layer, x: Tensor) -> Tensor | None:
        if self.mode == "mlp":
            self.found = x.clone()
            raise _Stop
        if self.mode != "live":
            return None
        self.freezing = False
        at = self.graph.index[f"mlp{layer.site.layer}"]
        new = self.mlps.get(layer.order)
        if bool(self.gone[:, at].any()):
            new = self._replaced(at, x if new is None else new)
        if bool(self.recorded[at]):
            mine = x.clone() if new is None else new  # some families add attention to it in place
            self.live[at] = self._shaped(mine)
        return None if new is None else new.clone()
