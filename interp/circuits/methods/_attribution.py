"""Scores of nodes and edges from gradients, for one batch of clean and corrupted prompts.

A score is the first-order estimate of v(clean) - v(with the corrupted value at the node or edge),
in the value's own unit, per prompt; positive where the node or edge helps the task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch

from interp.circuits.methods._gradients import PLAIN, Backward, Passes, Replaced, Value, edge_scores
from interp.circuits.node_outputs import NodeOutputs, paired_outputs
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.steps import advance
from interp.core.errors import OptionError

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float
    from torch import Tensor

    from interp.attribution.rules import Rules

At = Literal["clean", "corrupted"]
Path = Literal["inputs", "activations"]


@dataclass(eq=False)
class RunPair:
    """Batch of clean and corrupted prompts with the node outputs of both runs.

    Attributes:
        rows: Further numbers of a batch by name, for a method's tables, `[..., batch]`.
    """

    graph: ResidualGraph
    clean: Any
    corrupted: Any
    value: Value
    passes: Passes
    rows: dict[str, Float[np.ndarray, "*kind batch"]] = field(default_factory=dict)
    outputs: tuple[NodeOutputs, NodeOutputs] | None = None  # of both runs, if they are known

    def __post_init__(self) -> None:
        if self.outputs is not None:
            self.on_clean, self.on_corrupted = self.outputs
            return
        self.on_clean, self.on_corrupted = paired_outputs(self.graph, self.clean, self.corrupted)
        self.passes.forwards += 2

    @property
    def delta(self) -> Float[Tensor, "batch pos writer d_model"]:
        """Difference of what each node writes, clean minus corrupted."""
        return self.on_clean.out - self.on_corrupted.out

    def backward(self, at: At, rules: Rules = PLAIN, **options: Any) -> Backward:
        """Run one forward and backward pass on the clean or the corrupted prompts."""
        if at not in ("clean", "corrupted"):
            raise OptionError(f"at={at!r}; the gradient is taken at the clean or corrupted run")
        self.passes.forwards += 1
        self.passes.backwards += 1
        inputs = self.clean if at == "clean" else self.corrupted
        run = Backward(self.graph, inputs, self.value, rules=rules, **options)
        advance()
        return run


Units = Callable[[ResidualGraph, str], int]
"""Number of progress units of a method per batch, at the level "head" or "edge"."""


def units(runs: Callable[[ResidualGraph], int]) -> Units:
    """Return the progress units of a method with this many backward passes per batch.

    At the level "edge" each backward pass has one more unit for every reader.
    """
    return lambda graph, level: runs(graph) * (1 + (len(graph.readers) if level == "edge" else 0))


def stages(graph: ResidualGraph) -> int:
    """Return the number of groups of writers that are moved separately along activations."""
    return 1 + sum(1 + layer.has_mlp for layer in graph.layers)


def edges_by_gradient(
    pair: RunPair, *, at: At = "clean", rules: Rules = PLAIN
) -> Float[Tensor, "batch reader writer"]:
    """Score all edges by edge attribution patching, with one gradient (Syed et al. 2023)."""
    return edge_scores(pair.backward(at, rules), pair.delta)


def edges_along_inputs(
    pair: RunPair, *, steps: int, rules: Rules = PLAIN, readers: Sequence[int] | None = None
) -> Float[Tensor, "batch reader writer"]:
    """Score edges by the gradient averaged over midpoints of a straight path between embeddings.

    Only the edges into some readers are scored if their numbers are given; others are 0.
    """
    delta = pair.delta
    clean, corrupted = pair.on_clean.out[:, :, 0], pair.on_corrupted.out[:, :, 0]
    total = torch.zeros(())
    for k in range(steps):
        embed = corrupted + (k + 0.5) / steps * (clean - corrupted)
        run = pair.backward("clean", rules, replaced=Replaced(embed=embed))
        total = total + edge_scores(run, delta, readers=readers) / steps
    return total


def edges_along_activations(
    pair: RunPair, *, steps: int, rules: Rules = PLAIN
) -> Float[Tensor, "batch reader writer"]:
    """Score edges by group of writers, with the gradient averaged while only that group moves.

    Groups are the embeddings, the heads of one layer, and each MLP; there are `steps` passes for
    each group.
    """
    graph, delta = pair.graph, pair.delta
    total = torch.zeros(())
    for writers, make in _stages(graph, pair.on_clean, pair.on_corrupted):
        for k in range(steps):
            run = pair.backward("clean", rules, replaced=make((k + 0.5) / steps))
            total = total + edge_scores(run, delta, writers) / steps
    return total


def _stages(graph: ResidualGraph, clean: NodeOutputs, corrupted: NodeOutputs) -> list:
    """List groups of writers, each with its activations at a fraction of the path to clean."""

    def between(a: Tensor, b: Tensor, part: float) -> Tensor:
        return b + part * (a - b)

    groups: list = [
        (
            slice(0, 1),
            lambda t: Replaced(embed=between(clean.out[:, :, 0], corrupted.out[:, :, 0], t)),
        )
    ]
    for layer in graph.layers:
        i = layer.order

        def z(t: float, i: int = i) -> Replaced:
            return Replaced(z={i: between(clean.z[i], corrupted.z[i], t)})

        groups.append((graph.heads_of(layer), z))
        if layer.has_mlp:
            at = graph.index[f"mlp{layer.site.layer}"]

            def mlp(t: float, i: int = i, at: int = at) -> Replaced:
                out = between(clean.out[:, :, at], corrupted.out[:, :, at], t)
                return Replaced(mlp={i: out})

            groups.append((slice(at, at + 1), mlp))
    return groups


def nodes_of(pair: RunPair, run: Backward) -> Float[Tensor, "batch writer"]:
    """Compute node scores of one run: gradients by what nodes write times clean minus corrupted.

    They equal the sums of a plain run's edge scores over the readers.
    """
    graph, delta = pair.graph, pair.delta
    scores = delta.new_zeros(len(delta), len(graph.writers))
    scores[:, 0] = (delta[:, :, 0] * run.embed).sum((1, 2))
    for layer in graph.layers:
        i, site = layer.order, layer.site
        difference = (pair.on_clean.z[i] - pair.on_corrupted.z[i]).unflatten(
            -1, (site.n_heads, site.d_v)
        )
        scores[:, graph.heads_of(layer)] = (difference * run.by_head[i]).sum((1, 3))
        if layer.has_mlp:
            at = graph.index[f"mlp{site.layer}"]
            scores[:, at] = (delta[:, :, at] * run.mlps[i]).sum((1, 2))
    return scores


def nodes_by_gradient(
    pair: RunPair, *, at: At = "clean", rules: Rules = PLAIN
) -> Float[Tensor, "batch writer"]:
    """Score every writer by attribution patching."""
    return nodes_of(pair, pair.backward(at, rules))


def nodes_along_inputs(
    pair: RunPair, *, steps: int, rules: Rules = PLAIN
) -> Float[Tensor, "batch writer"]:
    """Score nodes by the gradient averaged along the straight path between the embeddings."""
    clean, corrupted = pair.on_clean.out[:, :, 0], pair.on_corrupted.out[:, :, 0]
    total = torch.zeros(())
    for k in range(steps):
        embed = corrupted + (k + 0.5) / steps * (clean - corrupted)
        run = pair.backward("clean", rules, replaced=Replaced(embed=embed))
        total = total + nodes_of(pair, run) / steps
    return total


def nodes_along_activations(
    pair: RunPair, *, steps: int, rules: Rules = PLAIN
) -> Float[Tensor, "batch writer"]:
    """Score nodes with each group of nodes moved separately; see `edges_along_activations`."""
    total = torch.zeros_like(pair.delta[:, 0, :, 0])
    for writers, make in _stages(pair.graph, pair.on_clean, pair.on_corrupted):
        for k in range(steps):
            run = pair.backward("clean", rules, replaced=make((k + 0.5) / steps))
            total[:, writers] += nodes_of(pair, run)[:, writers] / steps
    return total


def nodes_with_drops(pair: RunPair, *, at: At = "clean") -> Float[Tensor, "batch writer"]:
    """Score nodes by GradDrop: absolute scores averaged over runs without one layer's gradient.

    Effects through different layers that cancel in the plain gradient do not cancel in all of these
    runs. The sign is lost. A node has no score in the run that drops its own layer, so the sum over
    L runs is divided by L - 1.
    """
    layers = len(pair.graph.layers)
    if layers < 2:
        raise OptionError("grad_drop needs two layers: one of them is dropped at a time")
    total = torch.zeros_like(pair.delta[:, 0, :, 0])
    for dropped in range(layers):
        run = pair.backward(at, dropped=dropped)
        total += nodes_of(pair, run).abs() / (layers - 1)
    return total


def effects_without(
    pair: RunPair, name: str
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch writer"]]:
    """Patch one head, and estimate in that run the effect of every other node.

    One forward and one backward pass: what the nodes write there, minus what they write in the
    corrupted run, times the gradient there. A backup that is silent in the clean run is active.
    """
    graph = pair.graph
    layer = next(x for x in graph.layers if name.startswith(f"L{x.site.layer}H"))
    number = graph.index[name] - graph.heads_of(layer).start
    z = pair.on_corrupted.z[layer.order].unflatten(-1, (layer.site.n_heads, -1))[:, :, number]
    run = pair.backward("clean", replaced=Replaced(heads={layer.order: {number: z}}))
    effects = pair.delta.new_zeros(len(pair.delta), len(graph.writers))
    for other in graph.layers:
        i, site = other.order, other.site
        change = (run.z[i] - pair.on_corrupted.z[i]).unflatten(-1, (site.n_heads, site.d_v))
        effects[:, graph.heads_of(other)] = (change * run.by_head[i]).sum((1, 3))
        if other.has_mlp:
            at = graph.index[f"mlp{site.layer}"]
            change = run.written[i] - pair.on_corrupted.out[:, :, at]
            effects[:, at] = (change * run.mlps[i]).sum((1, 2))
    return run.values, effects
