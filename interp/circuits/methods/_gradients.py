"""Backward pass with the separate gradient of every reader of the residual graph.

The gradient of a reader is the gradient of the value by the stream *as this reader reads it*: by
the input of one head's queries, keys or values, of one MLP, or of the unembedding. An edge's score
is the inner product of this gradient with the writer's clean minus corrupted output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.attribution.roles import find_roles
from interp.attribution.rules import Rules, _pattern, _Scaled, as_is, ruled
from interp.attribution.tracing import trust
from interp.causal.gate_derivatives import frozen
from interp.circuits.attention_parts import (
    AttentionTensors,
    attention_tensors,
    check_computed,
    mixed_parts,
    probabilities,
    scores_of,
)
from interp.circuits.node_outputs import z_of_heads
from interp.circuits.residual_graph import PARTS, Layer, Reader, ResidualGraph
from interp.circuits.steps import advance
from interp.circuits.stream_hooks import Watch, watched
from interp.core.errors import NonFiniteError, OptionError, UnreadableAttention
from interp.model.calls.call import Call, ComputedCall
from interp.model.calls.sites import Site
from interp.model.hooks.inference import inference
from interp.model.hooks.long_output import is_long, long_output

if TYPE_CHECKING:
    from jaxtyping import Float


Value = Callable[[Tensor], Tensor]
"""Logits `[batch, pos, d_vocab]` to one number per prompt."""

PLAIN = Rules()
GIM = Rules(temperature=2.0, norm="freeze", split=True)


@dataclass(eq=False)
class Passes:
    """Count of forward and backward passes over all prompts."""

    forwards: float = 0.0
    backwards: float = 0.0


@dataclass(frozen=True, eq=False)
class Replaced:
    """Replacements of activations in a run: the first stream, z of a layer or head, MLP outputs."""

    embed: Tensor | None = None
    z: Mapping[int, Tensor] = field(default_factory=dict)  # by layer, all heads' side by side
    heads: Mapping[int, Mapping[int, Tensor]] = field(default_factory=dict)  # z of single heads
    mlp: Mapping[int, Tensor] = field(default_factory=dict)


class Backward(Watch):
    """Run with its gradients; see `readers()` and the attributes.

    Args:
        graph: The residual graph of the model.
        inputs: Prompts of one length.
        value: A number per prompt from the logits; the gradient is that of their sum.
        rules: Replacements of derivatives (such as `GIM`); plain derivatives by default.
        replaced: Activations that replace the model's own.
        dropped: A layer whose outputs pass no gradient on (GradDrop).
        patterns: Also keep the gradient by every attention pattern.

    Attributes:
        values: The value of each prompt in this run.
        by_head: By layer, the gradient by every head's z, `[batch, pos, head, d_v]`.
        mlps: By layer, the gradient by the MLP's output; `embed` is that by the first stream.
        by_part: By (layer, input), the gradient by all heads' queries, keys or values.
        by_pattern: By layer, the gradient by the attention pattern,
            `[batch, head, query_pos, key_pos]`, if `patterns`.

    Raises:
        UnreadableAttention: An attention cannot be recomputed from its queries and keys.
        NonFiniteError: A gradient is NaN or infinite.
        OptionError: The value is not a differentiable function of the logits.
    """

    def __init__(
        self,
        graph: ResidualGraph,
        inputs: Any,
        value: Value,
        *,
        rules: Rules = PLAIN,
        replaced: Replaced | None = None,
        dropped: int | None = None,
        patterns: bool = False,
    ) -> None:
        self.graph, self.rules, self.dropped = graph, rules, dropped
        self._patterns: dict[int, Tensor] | None = {} if patterns else None
        self.replaced = replaced or Replaced()
        self._pre: dict[int, Tensor] = {}
        self._mid: dict[int, Tensor] = {}
        self._out: dict[int, Tensor] = {}
        self._z: dict[int, Tensor] = {}
        self._parts: dict[int, AttentionTensors] = {}
        self._last: Tensor | None = None
        self._go(graph.model.inputs(inputs), value)

    # --- the run --------------------------------------------------------------------------------

    def _go(self, inputs: Any, value: Value) -> None:
        model = self.graph.model
        plain = self.rules == PLAIN
        roles = None if plain else find_roles(model, inputs)
        with torch.enable_grad(), frozen(model.module), inference(model.module):
            with ExitStack() as stack:
                run = None if plain else stack.enter_context(ruled(model, self.rules, roles))  # type: ignore[arg-type]
                self._ruled = run
                stack.enter_context(watched(self.graph, self))
                stack.enter_context(model.visited(self._visit, stage="mix"))
                logits = model.run(inputs)
                if run is not None:
                    run.check(logits)
            values = value(logits)
            if not values.requires_grad:
                raise OptionError(
                    f"{model.name}: the task's value does not depend smoothly on the logits, so it "
                    "has no gradient; use a method that patches, such as exact_patching"
                )
            self.values = values.detach().double()
            layers = range(len(self.graph.layers))
            keys = [(i, p) for i in layers if i in self._parts for p in PARTS]
            wanted = [getattr(self._parts[i], part) for i, part in keys]
            wanted += [self._z[i] for i in layers]
            wanted += [self._out[i] for i in self._out]
            assert self._last is not None
            wanted += [self._pre[0], self._last]
            wanted += (self._patterns or {}).values()
            given = torch.autograd.grad(values.sum(), wanted, allow_unused=True, retain_graph=True)
        gradients = [
            torch.zeros_like(x) if g is None else g for x, g in zip(wanted, given, strict=True)
        ]
        for g in gradients:
            if not bool(torch.isfinite(g).all()):
                raise NonFiniteError(f"{model.name}: NaN or infinity in a gradient; try float32")
        rest = iter(gradients)
        self.by_part = dict(zip(keys, rest, strict=False))
        by_z = zip(self.graph.layers, rest, strict=False)
        self.by_head = {layer.order: z_of_heads(layer, x) for layer, x in by_z}
        self.mlps = dict(zip(self._out, rest, strict=False))
        self.embed, self._at_end, *by_pattern = rest
        self.by_pattern = dict(zip(self._patterns or (), by_pattern, strict=True))

    @property
    def z(self) -> Mapping[int, Tensor]:
        """By layer, the outputs (z) of all heads in this run, concatenated."""
        return {i: x.detach() for i, x in self._z.items()}

    @property
    def written(self) -> Mapping[int, Tensor]:
        """By layer, what the MLP wrote in this run."""
        return {i: x.detach() for i, x in self._out.items()}

    def pre(self, layer: Layer, x: Tensor) -> Tensor:
        """Record the stream that enters a block; gradients end at the first one."""
        if layer.order == 0:
            x = x if self.replaced.embed is None else self.replaced.embed
            x = x.detach().clone().requires_grad_(True)
        self._pre[layer.order] = x
        return x.clone()

    def mid(self, layer: Layer, x: Tensor) -> Tensor:
        """Record the stream that an MLP reads."""
        self._mid[layer.order] = x
        return x.clone()

    def heads(self, layer: Layer, x: Tensor) -> Tensor:
        """Record the outputs (z) of all heads."""
        new = self.replaced.z.get(layer.order)
        x = x if new is None else new.detach().clone().requires_grad_(True)
        for head, given in self.replaced.heads.get(layer.order, {}).items():
            columns = torch.arange(x.shape[-1], device=x.device) // layer.site.d_v == head
            x = torch.where(columns, given.detach().repeat(1, 1, layer.site.n_heads).to(x), x)
        self._z[layer.order] = x
        return x.detach() if layer.order == self.dropped else x.clone()

    def mlp(self, layer: Layer, x: Tensor) -> Tensor:
        """Record the output of an MLP."""
        new = self.replaced.mlp.get(layer.order)
        x = x if new is None else new.detach().clone().requires_grad_(True)
        self._out[layer.order] = x
        return x.detach() if layer.order == self.dropped else x.clone()

    def post(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Record the stream that the final norm reads."""
        if layer.order < len(self.graph.layers) - 1:
            return None
        self._last = x
        return x.clone()

    def _visit(self, site: Site, call: Call, real: Tensor) -> None:
        model, rules = self.graph.model, self.rules
        if self.graph.layers[self.graph.order_of(site)].whole:
            return
        parts = attention_tensors(call, site)
        self._parts[self.graph.order_of(site)] = parts
        if is_long(call) and rules == PLAIN and self._patterns is None:
            assert isinstance(call, ComputedCall)
            z = long_output(call, parts.q, parts.k, parts.v)
            check_computed(call, site, z)
            call.z = as_is(call.z, z)
            return
        scores, v = scores_of(model, site, call, parts), parts.v
        if rules == PLAIN:
            pattern = probabilities(call, scores)
        elif rules.softmax == "freeze":
            pattern = probabilities(call, scores).detach()
        else:
            if rules.split is True:
                scores, v = _Scaled.apply(scores, 0.25), _Scaled.apply(v, 0.5)
            pattern = _pattern(call, scores, rules)
        if self._patterns is not None:
            self._patterns[self.graph.order_of(site)] = pattern  # type: ignore[assignment]
        z = mixed_parts(call, pattern, v)  # type: ignore[arg-type]
        check_computed(call, site, z)
        if self._ruled is not None:
            ends = [parts.v] if rules.softmax == "freeze" else [parts.q, parts.k, parts.v]
            trust(z, ends, self._ruled.trusted)
        call.z = as_is(call.z, z)

    def entering(
        self, change: Float[Tensor, "batch pos writer d_model"], writers: slice
    ) -> Float[Tensor, "batch pos writer d_model"]:
        """Return the change of the stream to first order in changes of what writers write."""
        norms = [
            norm
            for norm in self.graph.norms
            if norm.heads.start < writers.stop and norm.heads.stop > writers.start
        ]
        change = change.clone() if norms else change
        for norm in norms:
            layer, heads, frozen = self.graph.layers[norm.order], norm.heads, self.rules.norm
            z = z_of_heads(layer, self.z[norm.order])
            total = self.graph.head_outputs(layer).unscaled(z).sum(2)
            change[:, :, heads] = norm.first_order(
                change[:, :, heads], total, frozen=frozen == "freeze"
            )
        return change

    # --- gradients of readers -------------------------------------------------------------------

    def readers(self) -> Iterator[tuple[Reader, Float[Tensor, "batch pos d_model"]]]:
        """Yield every reader with its gradient, in the graph's order."""
        for reader in self.graph.readers:
            yield reader, self.of(reader)

    def of(self, reader: Reader) -> Float[Tensor, "batch pos d_model"]:
        """Return the gradient of one reader."""
        if reader.kind == "logits":
            return self._at_end
        order = reader.order
        if reader.kind == "mlp":
            layer = self.graph.layers[order]
            start = self._pre[order] if layer.parallel else self._mid[order]
            return self._back(self._out[order], start, self.mlps[order], reader)
        if not reader.part:
            mine = torch.zeros_like(self.by_head[order])
            mine[:, :, reader.head] = self.by_head[order][:, :, reader.head]
            return self._back(self._z[order], self._pre[order], mine.flatten(2), reader)
        gradient = self.by_part[order, reader.part]
        mine = torch.zeros_like(gradient)
        mine[:, reader.head] = gradient[:, reader.head]
        end = getattr(self._parts[order], reader.part)
        return self._back(end, self._pre[order], mine, reader)

    def _back(self, end: Tensor, start: Tensor, gradient: Tensor, reader: Reader) -> Tensor:
        if not end.requires_grad or end.grad_fn is None:
            return torch.zeros_like(start)  # replaced, so no gradient reaches the model
        (grad,) = torch.autograd.grad(end, start, gradient, retain_graph=True, allow_unused=True)
        if grad is None:
            raise UnreadableAttention(
                f"{self.graph.model.name}: no gradient reaches the stream from {reader.name}"
            )
        return grad


def edge_scores(
    run: Backward,
    delta: Float[Tensor, "batch pos writer d_model"],
    writers: slice | None = None,
    readers: Sequence[int] | None = None,
) -> Float[Tensor, "batch reader writer"]:
    """Compute edge scores: gradients of readers times differences of writers; 0 without an edge."""
    graph = run.graph
    n = len(graph.writers)
    scores = delta.new_zeros(len(delta), len(graph.readers), n)
    first, end = (0, n) if writers is None else (writers.start, writers.stop)
    delta = run.entering(delta, slice(first, end))
    for i in range(len(graph.readers)) if readers is None else readers:
        reader = graph.readers[i]
        last = min(end, reader.n_before)
        if last > first:
            part = delta[:, :, first:last]
            scores[:, i, first:last] = torch.einsum("bpud,bpd->bu", part, run.of(reader))
        advance()
    return scores
