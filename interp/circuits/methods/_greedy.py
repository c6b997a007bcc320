"""Greedy removal of edges or nodes, from the logits backwards, while a measure changes little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuits.contrast_batch import ContrastBatch
from interp.circuits.methods._divergence import negative_divergence
from interp.circuits.methods._gradients import Value
from interp.circuits.patched_runs import PatchedRuns
from interp.circuits.steps import advance, counted

if TYPE_CHECKING:
    from interp.circuits.residual_graph import ResidualGraph

Array = np.ndarray
Edge = tuple[str, str]
STAGE = "removing edges"
RULES = ("increase", "absolute")
ORDERS = ("late", "early")
KEPT, REMOVED, UNUSED, SCREENED = "kept", "removed", "no reader left", "below the screen"


@dataclass(eq=False)
class Removal:
    """Greedy search on one graph.

    Args:
        runs: The pairs of runs.
        threshold: Largest change that a removal may make, in the unit of the metric.
        rule: "increase": a removal stays if the loss grows by less than the threshold, so one that
            improves it always stays; "absolute": if it changes by less, to either side.
        metric: "task" or "kl".

    Attributes:
        mask: The edges that carry clean values.
        change: By tried edge or node, what each pair lost when it was removed.
        fate: By edge or node, what happened to it.
        untried: What is lost by the removal, all at once, of the edges that are no candidates.
    """

    runs: PatchedRuns
    threshold: float
    rule: str
    metric: str
    mask: Float[Tensor, "reader writer"]
    lost: Float[Array, " prompt"]
    change: dict[Edge, Float[Array, " prompt"]] = field(default_factory=dict)
    fate: dict[Edge, str] = field(default_factory=dict)
    untried: float = 0.0

    @property
    def graph(self) -> ResidualGraph:
        """The residual graph."""
        return self.runs.graph

    def measure(self, mask: Float[Tensor, "reader writer"], stage: str = STAGE) -> Array:
        """Return what each pair loses under a mask, in the unit of the metric."""
        return self.runs.effects([mask], stage, value=value_of(self.runs, self.metric))[0]

    def exceeds(self, change: float) -> bool:
        """Return True if a change of the mean is too large for a removal."""
        return (abs(change) if self.rule == "absolute" else change) >= self.threshold

    def try_without(self, name: Edge, mask: Float[Tensor, "reader writer"]) -> bool:
        """Remove something if that changes little enough; return whether it was removed."""
        lost = self.measure(mask)
        self.change[name] = lost - self.lost
        gone = not self.exceeds(float(self.change[name].mean()))
        self.fate[name] = REMOVED if gone else KEPT
        if gone:
            self.mask, self.lost = mask, lost
        return gone

    def edges(self, order: str) -> None:
        """Try all edges, the readers from the logits backwards."""
        graph = self.graph
        with counted(STAGE, int(self.mask.sum())):
            for reader in reversed(graph.readers):
                row = graph.reader_index[reader.name]
                writers = self.mask[row].nonzero().flatten().tolist()
                read = reader.kind == "logits" or bool(self.mask[:, graph.index[reader.node]].any())
                for w in reversed(writers) if order == "late" else writers:
                    edge, mask = (graph.writers[w], reader.name), self.mask.clone()
                    mask[row, w] = 0
                    if read:
                        self.try_without(edge, mask)
                    else:
                        self.mask, self.fate[edge] = mask, UNUSED
                    advance()

    def nodes(self, order: str) -> None:
        """Try all nodes with everything that they write, the last writers first."""
        graph = self.graph
        with counted(STAGE, len(graph.writers)):
            for group in reversed(writer_groups(graph)):
                for name in reversed(group) if order == "late" else group:
                    mask = self.mask.clone()
                    mask[:, graph.index[name]] = 0
                    self.try_without((name, ""), mask)
                    advance()


def writer_groups(graph: ResidualGraph) -> list[Sequence[str]]:
    """List writers that do not read each other together: embeddings, heads of a layer, each MLP."""
    groups: list[Sequence[str]] = [("embed",)]
    for layer in graph.layers:
        groups.append(graph.writers[graph.heads_of(layer)])
        groups += [(f"mlp{layer.site.layer}",)] if layer.has_mlp else []
    return groups


def value_of(runs: PatchedRuns, metric: str):
    """Return what measures the runs of a batch; None for the task's own value."""
    if metric == "task":
        return None

    def value(i: int, batch: ContrastBatch) -> Value:
        with torch.no_grad():
            return negative_divergence(runs.task, batch, runs.edges(i).base.logits)

    return value
