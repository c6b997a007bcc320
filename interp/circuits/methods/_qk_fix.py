"""Attribution patching with the softmax of queries and keys computed, not linearised (AtP*).

A saturated softmax has almost no gradient, although another query or key may change the pattern
completely. Here the pattern that a patched query (or key) gives is computed, and only what follows
the pattern is linearised: the score is the gradient by the pattern times the change of the pattern.
The patched query of an edge is that of the stream without what its writer adds, through the model's
own norm and weights.

Reference: Kramar et al. 2024 (arXiv 2403.00745), section on the QK fix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.circuits.attention_parts import (
    AttentionTensors,
    attention_tensors,
    probabilities,
    scores_of,
)
from interp.circuits.methods._attribution import At, RunPair, Units, units
from interp.circuits.methods._gradients import edge_scores
from interp.circuits.residual_graph import Layer, ResidualGraph
from interp.circuits.steps import advance
from interp.circuits.stream_hooks import replace_first, replaced_blocks
from interp.core.errors import UnreadableAttention
from interp.model.hooks.inference import inference
from interp.model.locate.find_sites import first_tensor

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site

WHOLE = -1  # instead of the number of a writer: the whole stream


@dataclass(eq=False)
class Fixed:
    """Scores with computed softmaxes.

    Args:
        edges: Edge scores of every run (one run, or one for each dropped layer).
        inputs: By (layer's order, input), what each head loses when that whole input is patched,
            for the first run.
        plain: The same as `inputs`, from the gradient alone.
    """

    edges: list[Float[Tensor, "batch reader writer"]]
    inputs: dict[tuple[int, str], Float[Tensor, "batch head"]] = field(default_factory=dict)
    plain: dict[tuple[int, str], Float[Tensor, "batch head"]] = field(default_factory=dict)


def fixed_scores(pair: RunPair, *, at: At = "clean", drops: bool = False) -> Fixed:
    """Score edges; those into queries and keys by patterns that are computed."""
    graph = pair.graph
    if whole := [layer.site.name for layer in graph.layers if layer.whole]:
        raise UnreadableAttention(
            f"{graph.model.name}: {', '.join(whole)} have no queries and keys of their own to "
            "compute a softmax of; leave out qk_fix"
        )
    patterns: list[dict[int, Tensor]] = []
    fixed = Fixed([])
    by_part: dict[tuple[int, str], Tensor] = {}
    for dropped in range(len(graph.layers)) if drops else [None]:
        run = pair.backward(at, dropped=dropped, patterns=True)
        fixed.edges.append(edge_scores(run, pair.delta))
        patterns.append(run.by_pattern)
        by_part = by_part or run.by_part
    sign = 1.0 if at == "clean" else -1.0  # sign of the change of a pattern when it is patched

    def scored(order: int, writer: int, part: str, change: Tensor) -> None:
        layer = graph.layers[order]
        for run, (edges, gradient) in enumerate(zip(fixed.edges, patterns, strict=True)):
            score = sign * (gradient[order] * change).sum((-2, -1))
            if writer != WHOLE:
                first = graph.reader_index[f"L{layer.site.layer}H0.{part}"]
                edges[:, first : first + 3 * layer.site.n_heads : 3, writer] = score.to(edges)
            elif run == 0:
                fixed.inputs[order, part] = score

    def moved(order: int, own: AttentionTensors, other: AttentionTensors) -> None:
        for part in ("q", "k", "v"):
            change = getattr(own, part) - getattr(other, part)
            linear = sign * (by_part[order, part] * change).sum((-2, -1))
            fixed.plain[order, part] = linear
            if part == "v":
                fixed.inputs[order, part] = linear  # nothing to fix: z is linear in values

    _Patched(pair, at, scored, moved).run()
    return fixed


def units_fixed(drops: bool) -> Units:
    """Return the progress units of `fixed_scores`.

    Its gradients are always those of edges.
    """
    runs = units(lambda graph: len(graph.layers) if drops else 1)
    return lambda graph, level: runs(graph, "edge") + _reads(graph)


def _reads(graph: ResidualGraph) -> int:
    return sum(_before(graph, layer) + 1 for layer in graph.layers)


def _before(graph: ResidualGraph, layer: Layer) -> int:
    return graph.readers_of(f"L{layer.site.layer}H0")[0].n_before


class _Stop(Exception):
    """Signal that a block was run as far as needed."""


class _Patched:
    """Run on the base prompts in which every block is also read on patched streams."""

    def __init__(
        self,
        pair: RunPair,
        at: At,
        scored: Callable[[int, int, str, Tensor], None],
        moved: Callable[[int, AttentionTensors, AttentionTensors], None],
    ) -> None:
        self.graph: ResidualGraph = pair.graph
        self.pair, self.scored, self.moved = pair, scored, moved
        clean = at == "clean"
        self.inputs = pair.clean if clean else pair.corrupted
        mine, self.other = (pair.on_clean, pair.on_corrupted)[:: 1 if clean else -1]
        self.delta = self.graph.changes_alone(self.other.out, mine.out)
        self.reading = False
        self.found: Any = None
        self.calls: dict[int, Call] = {}

    def run(self) -> None:
        """Call `scored` for every writer and query or key, and `moved` for every layer."""
        model = self.graph.model
        every = [layer.site.module for layer in self.graph.layers]
        hooked = replaced_blocks(self.graph, self._block, self._visit, every)
        with torch.no_grad(), inference(model.module), hooked:
            model.run(model.inputs(self.inputs))
        # each read is the part of a forward pass up to one attention
        self.pair.passes.forwards += 1 + _reads(self.graph) / len(self.graph.layers)

    def _visit(self, site: Site, call: Call, real: Tensor) -> None:
        if self.reading:
            self.found = attention_tensors(call, site)
            raise _Stop
        self.calls[self.graph.order_of(site)] = call

    def _block(self, layer: Layer, own: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            given = first_tensor(args)
            x = first_tensor(kwargs) if given is None else given
            assert x is not None
            stream = x.clone()  # a block may add to it in place
            out = own(*args, **kwargs)
            self._read(layer, own, (args, kwargs), x, stream)
            return out

        return forward

    def _read(
        self, layer: Layer, own: Callable, given: tuple[tuple, dict], x: Tensor, stream: Tensor
    ) -> None:
        model, site, call = self.graph.model, layer.site, self.calls.pop(layer.order)
        mine = attention_tensors(call, site)
        before = probabilities(call, scores_of(model, site, call, mine))
        for writer in (WHOLE, *range(_before(self.graph, layer))):
            if writer == WHOLE:
                patched = self.other.streams[layer.order][0]
            else:
                patched = stream + self.delta[:, :, writer].reshape(stream.shape)
            parts = self._until(own, replace_first(given, x, patched.reshape(x.shape).to(x.dtype)))
            if writer == WHOLE:
                self.moved(layer.order, mine, parts)
            for part, mixed in (
                ("q", AttentionTensors(parts.q, mine.k, mine.v)),
                ("k", AttentionTensors(mine.q, parts.k, mine.v)),
            ):
                after = probabilities(call, scores_of(model, site, call, mixed))
                self.scored(layer.order, writer, part, before - after)
            advance()

    def _until(self, own: Callable[..., Any], given: tuple[tuple, dict]) -> AttentionTensors:
        """Run a block on another stream until its queries and keys have been read."""
        self.reading = True
        try:
            own(*given[0], **given[1])
        except _Stop:
            parts, self.found = self.found, None
            return parts
        finally:
            self.reading = False
        raise UnreadableAttention(
            f"{self.graph.model.name}: a block ran without its inputs being read"
        )
