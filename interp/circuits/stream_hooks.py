"""Hooks that observe or replace what the layers of a residual graph read and write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch

from interp.causal.game.patching import rebuilt, tensors_in
from interp.core.interrupts import holding
from interp.model.hooks.inference import forward_here, in_this_thread, replaced
from interp.model.locate.find_sites import first_tensor

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor, nn

    from interp.circuits.residual_graph import Layer, ResidualGraph
    from interp.model.hooks.tap import Visit

    Seen = Callable[[Layer, Float[Tensor, "batch pos width"]], Tensor | None]


KEPT = 8  # times the stream: largest size of a block's output that is kept


class Watcher(Protocol):
    """Callbacks for each place in a layer; a returned tensor replaces the observed one."""

    def pre(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Observe the stream that enters a block."""
        ...

    def heads(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Observe the concatenated outputs (z) of all heads: the input of the output projection."""
        ...

    def mid(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Observe the stream that the MLP of a sequential block reads."""
        ...

    def mlp(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Observe what the MLP adds to the stream."""
        ...

    def post(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Observe the stream that leaves a block."""
        ...


class Watch:
    """Watcher that does nothing; subclasses override the places that they observe."""

    def pre(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Observe the stream that enters a block."""

    def heads(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Observe the concatenated outputs (z) of all heads: the input of the output projection."""

    def mid(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Observe the stream that the MLP of a sequential block reads."""

    def mlp(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Observe what the MLP adds to the stream."""

    def post(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Observe the stream that leaves a block."""


@holding
@contextmanager
def watched(graph: ResidualGraph, watcher: Watcher) -> Iterator[None]:
    """Pass what layers read and write to a watcher, for runs of this thread within the block."""
    module = graph.model.module
    shape: list[tuple[int, ...]] = [()]
    handles = []

    def on_input(path: str, layer: Layer, see: Seen, first: bool = False) -> None:
        def hook(_: nn.Module, args: tuple, kwargs: dict) -> Any:
            given = first_tensor(args)
            x = first_tensor(kwargs) if given is None else given
            assert x is not None
            if first:
                shape[0] = tuple(x.shape[:2])
            new = see(layer, _rows(x, shape[0]))
            if new is None:
                return None
            return replace_first((args, kwargs), x, new.reshape(x.shape).to(x.dtype))

        handles.append(
            module.get_submodule(path).register_forward_pre_hook(
                in_this_thread(hook), with_kwargs=True
            )
        )

    def on_output(path: str, layer: Layer, see: Seen, scale: float = 1.0) -> None:
        def hook(_: nn.Module, args: tuple, output: Any) -> Any:
            x = first_tensor(output)
            if x is None:
                return None
            shown = _rows(x, shape[0])
            new = see(layer, shown if scale == 1 else shown * scale)
            if new is None:
                return None
            new = (new if scale == 1 else new / scale).reshape(x.shape).to(x.dtype)
            return replace_first(output, x, new)

        handles.append(module.get_submodule(path).register_forward_hook(in_this_thread(hook)))

    try:
        for layer in graph.layers:
            streams = layer.site.streams
            assert layer.site.projection is not None
            on_input(layer.block, layer, watcher.pre, first=True)
            on_input(layer.site.projection, layer, watcher.heads)
            if layer.has_mlp:
                if layer.middle is not None:
                    on_input(layer.middle, layer, watcher.mid)
                out = streams["mlp_out"]
                on_output(out.module, layer, watcher.mlp, out.scale)
            on_output(layer.block, layer, watcher.post)
        yield
    finally:
        for handle in handles:
            handle.remove()


@holding
@contextmanager
def replaced_blocks(
    graph: ResidualGraph,
    forward: Callable[[Layer, Callable[..., Any]], Callable[..., Any]],
    visit: Visit,
    among: Collection[str],
    *,
    fused: bool = False,
) -> Iterator[None]:
    """Replace the forward of every block, and visit some attention modules, within the block.

    With `fused` their kernels do not run: the visitor assigns the output.
    """
    model = graph.model
    with ExitStack() as stack:
        for layer in graph.layers:
            block = model.module.get_submodule(layer.block)
            stack.enter_context(replaced(block, forward(layer, forward_here(block))))
        if among:
            stack.enter_context(model.visited(visit, among=among, stage="mix", fused=fused))
        yield


def _rows(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    # OPT and mixtures of experts flatten prompts and positions into rows
    if x.dim() == 3:
        return x
    return x.reshape(*(shape if len(x) == shape[0] * shape[1] else (1, len(x))), -1)


def replace_first(tree: Any, old: Tensor, new: Tensor) -> Any:
    """Return the same structure with one tensor replaced."""
    return rebuilt(tree, iter([new if x is old else x for x in tensors_in(tree)]))


def one_copy(out: Any, rows: int, copies: int) -> Any:
    """Return the part of a module's output that belongs to one copy, if it can be kept."""
    tensors, parts = tensors_in(out), out if isinstance(out, tuple) else (out,)
    fits = all(x is None or isinstance(x, torch.Tensor) for x in parts)  # no cache, no mapping
    fits &= all(x.dim() and x.shape[0] == rows for x in tensors)
    if not fits or sum(x.numel() for x in tensors) > KEPT * tensors[0].numel():
        return None
    return rebuilt(out, iter([x[: rows // copies].clone() for x in tensors]))


class NoisyWatch(Watch):
    """Adds noise to what enters the first block; records or replaces one kind of activation."""

    def __init__(self, noise: Tensor | None, seen: dict[tuple[str, int], Tensor]) -> None:
        self.noise, self.seen = noise, seen
        self.replaced: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}

    def _at(self, site: str, layer: Layer, x: Tensor) -> Tensor | None:
        changed = None
        if site == "stream" and layer.order == 0 and self.noise is not None:
            changed = x = x + self.noise.repeat(len(x) // len(self.noise), 1, 1).to(x)
        if (replacement := self.replaced.get((site, layer.order))) is not None:
            values, places = replacement
            changed = x = x.clone()
            rows = torch.arange(len(x), device=x.device)
            x[rows, places] = values[rows % len(values), places].to(x)
        elif not self.replaced:
            self.seen[site, layer.order] = x.clone()
        return changed

    def pre(self, layer: Layer, x: Tensor) -> Tensor | None:
        """See the stream that enters a block."""
        return self._at("stream", layer, x)

    def heads(self, layer: Layer, x: Tensor) -> Tensor | None:
        """See the outputs (z) of all heads."""
        return self._at("attention", layer, x)

    def mlp(self, layer: Layer, x: Tensor) -> Tensor | None:
        """See the output of an MLP."""
        return self._at("mlp", layer, x)
