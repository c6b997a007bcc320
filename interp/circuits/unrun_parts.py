"""Parts of blocks that a run of a residual graph need not compute.

What every copy of the prompts replaces is not computed: an attention, an MLP, or the block of both.
A block before the first exchange returns what it returned for the prompts themselves, and the end
of the last block and the logits are computed at the positions that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from jaxtyping import Bool
from torch import Tensor

from interp.causal.game.patching import rebuilt, restricted, tensors_in, tiled
from interp.circuits.reader_inputs import ReaderGroup, ReaderInputs
from interp.circuits.residual_graph import Layer
from interp.circuits.stream_hooks import one_copy
from interp.model.hooks.inference import forward_here, replaced


class UnrunParts(ReaderInputs):
    """The part of a forward pass under masks that leaves out what is not needed.

    Attributes:
        groups: Groups of readers whose inputs are exchanged, by layer.
        start: Number of the first layer in which something is exchanged.
        unread: Writers that nobody reads from this run.
        mode: What the model runs for: `live`, or the inputs of `heads` or of an `mlp`.
        whole: True if the positions that are not read have logits, of 0.
    """

    groups: Mapping[int, list[ReaderGroup]]
    start: int
    unread: Bool[Tensor, " writer"]
    mode: str
    whole: bool

    def _read(self) -> tuple[frozenset[str], bool]:
        """Return the attentions of which a head's inputs are exchanged, and if no kernel need run.

        The output of such an attention is computed from the exchanged inputs.
        """
        layers = self.graph.layers
        orders = [i for i in self.groups if i < len(layers) and not layers[i].whole]
        some = [layers[i] for i in orders if self.groups[i][0].readers[0].kind == "head"]
        fused = not any(x.site.watched or x.site.recorded or x.parallel for x in some)
        return frozenset(x.site.module for x in some), fused

    @contextmanager
    def _only_read(self) -> Iterator[None]:
        """Run no attention and no MLP of which all copies replace what it writes."""
        module, tested = self.graph.model.module, self.edges.reuse.attention
        with ExitStack() as stack:
            for layer in self.graph.layers[self.start :]:
                heads = self.graph.heads_of(layer)
                paths = []
                # a tested one depends on its input only through what the projection reads
                if bool(self.unread[heads].all()) and layer.site in tested:
                    paths.append(layer.site.module)
                if layer.has_mlp and bool(self.unread[heads.stop]):
                    paths.append(layer.site.streams["mlp_out"].module)
                for path in paths:
                    part = module.get_submodule(path)
                    again = partial(self._again, layer, path, forward_here(part))
                    stack.enter_context(replaced(part, again))
            yield

    def _again(self, layer: Layer, path: str, own: Callable, *args: Any, **kwargs: Any) -> Any:
        """Return what a module returned when all that it writes was replaced."""
        kept = self.edges.outputs.get(path)
        if kept is None:
            out = own(*args, **kwargs)
            if self.mode == "live" and path not in self.edges.outputs:
                self._record(path, out)
            return out
        if path == layer.site.module:
            self._from_other(self.graph.heads_of(layer))
        return rebuilt(kept, iter([tiled(x, self.copies).clone() for x in tensors_in(kept)]))

    def _record(self, path: str, out: Any) -> None:
        copies = self.copies
        self.edges.outputs[path] = one_copy(out, copies * self.edges.base.out.shape[0], copies)

    def _from_other(self, writers: slice) -> None:
        for u in range(writers.start, writers.stop):
            self.live[u] = self.edges.other.out[None, :, :, u]

    def _restrict(self, stack: ExitStack) -> None:
        """Compute the logits, and the end of the last block, only at positions that are read."""
        wanted, reuse = self.edges.wanted, self.edges.reuse
        if wanted is None or reuse.unembedding is None:
            return
        module_of = self.graph.model.module.get_submodule
        shape = (self.copies * wanted.shape[0], wanted.shape[1])
        columns = None if self.whole or not reuse.columns else wanted.columns
        rows = wanted.copies(self.copies)
        for name in (*reuse.tail, reuse.unembedding):
            part, ends = module_of(name), name == reuse.unembedding
            forward = restricted(
                part,
                shape,
                rows if ends else rows.unique(),
                scatter=self.whole or not ends,
                columns=columns if ends else None,
            )
            stack.enter_context(replaced(part, forward))

    def _writers(self, layer: Layer) -> slice:
        heads = self.graph.heads_of(layer)
        return slice(heads.start, heads.stop + layer.has_mlp)

    def _replaced_block(
        self, layer: Layer, x: Tensor, own: Callable, args: tuple, kwargs: dict
    ) -> Any:
        """Return the output of a block of which all that is written is replaced."""
        known, other = self.edges.outputs, self.edges.other
        if layer.block not in known:
            out = own(*args, **kwargs)
            if len(tensors_in(out)) != 1:  # something else, which could depend on the input
                return out
            self._record(layer.block, out)
            if known[layer.block] is None:
                return out
        kept = known[layer.block]
        if kept is None or len(tensors_in(kept)) > 1:
            return own(*args, **kwargs)
        self._from_other(self._writers(layer))
        step = other.left[layer.order] - other.streams[layer.order][0]
        return rebuilt(kept, iter([x + tiled(step, self.copies)]))

    def _skipped(self, layer: Layer, own: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """Return the block's output in the run of the prompts themselves."""
        known, copies = self.edges.outputs, self.copies
        if layer.block not in known:
            out = own(*args, **kwargs)
            self._record(layer.block, out)
            if known[layer.block] is None:
                return out
        kept = known[layer.block]
        if kept is None:  # too large to keep, or not by prompt
            return own(*args, **kwargs)
        left, rest = self.edges.base.left[layer.order], tensors_in(kept)[1:]
        # a part that the next block may change in place is a copy
        return rebuilt(kept, iter([tiled(x, copies).clone() for x in (left, *rest)]))
