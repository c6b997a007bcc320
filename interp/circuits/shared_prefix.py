"""Positions before the first difference of two runs: their keys and values are computed once.

In a model whose positions read none after them, the first positions that both prompts of every
pair share carry the same numbers under every mask. Passes then run on the other positions alone,
with the cached keys and values of the first ones, if that gives the logits of both runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from interp.causal.game.patching import tiled
from interp.causal.game.replay import Reuse, Wanted
from interp.circuits.node_outputs import NodeOutputs
from interp.circuits.residual_graph import ResidualGraph
from interp.model.hooks.inference import inference
from interp.model.inputs import takes

if TYPE_CHECKING:
    from interp.circuits.reader_inputs import MixedRuns

EQUAL = 1e-6  # relative difference by rounding, as between prompts of mixtures of experts
LEAST = 0.25  # share of the positions that must be shared to be left out


class HeldCache(DynamicCache):
    """Keys and values of the first positions, for any number of copies; they do not grow."""

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the held keys and values, followed by the given ones."""
        layer: Any = self.layers[layer_idx]
        copies = len(key_states) // len(layer.keys)
        return (
            torch.cat([tiled(layer.keys, copies), key_states], -2),
            torch.cat([tiled(layer.values, copies), value_states], -2),
        )


@dataclass(eq=False)
class LaterPositions:
    """The part of two runs after the positions that they share (see `MixedRuns`)."""

    graph: ResidualGraph
    base: NodeOutputs
    other: NodeOutputs
    wanted: Wanted | None
    reuse: Reuse
    outputs: dict[str, Any]
    inputs: dict[str, Any]
    first: int

    def padded(self, logits: Tensor) -> Tensor:
        """Add logits of 0 at the positions that are left out."""
        return nn.functional.pad(logits, (0, 0, self.first, 0))


def later_positions(edges: MixedRuns, inputs: Mapping[str, Any]) -> LaterPositions | None:
    """Return the runs without the positions that they share; None if few are, or it is not exact.

    The keys and values are cached; the caller tests that the passes give the same logits.
    """
    base, other, module = edges.base, edges.other, edges.graph.model.module
    apart = (base.out - other.out).abs().flatten(2).amax(2).amax(0)
    same = (apart <= EQUAL * float(base.out.abs().max())).long()
    first, length = int(same.cumprod(0).sum()), len(same)
    ids, mask, wanted = inputs.get("input_ids"), inputs.get("attention_mask"), edges.wanted
    if ids is None or wanted is None or first < LEAST * length:
        return None
    plain = set(inputs) <= {"input_ids", "attention_mask"} and "past_key_values" in takes(module)
    plain &= mask is None or bool((mask == 1).all())
    if not plain or any(layer.whole for layer in edges.graph.layers):
        return None
    filled = DynamicCache()
    with torch.no_grad(), inference(module):
        module(input_ids=ids[:, :first], past_key_values=filled, use_cache=True)
    held = HeldCache()
    held.layers = filled.layers
    row, pos = wanted.flat // length, wanted.flat % length
    if bool((pos < first).any()):
        return None
    shorter = Wanted(
        row * (length - first) + pos - first, (len(ids), length - first), wanted.columns
    )
    return LaterPositions(
        edges.graph,
        _later(base, first),
        _later(other, first),
        shorter,
        edges.reuse,
        {},
        dict(inputs) | {"input_ids": ids[:, first:], "past_key_values": held},
        first,
    )


def _later(run: NodeOutputs, first: int) -> NodeOutputs:
    """Return the part of a run from a position on."""
    return replace(
        run,
        out=run.out[:, first:],
        streams=tuple((a[:, first:], b[:, first:]) for a, b in run.streams),
        z=tuple(z[:, first:] for z in run.z),
        left=tuple(x[:, first:] for x in run.left),
        logits=run.logits[:, first:],
    )
