"""From batches of one length to scores per pair, for methods on the residual graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuit.contrast import Batch, ContrastTask
from interp.circuit.declare import Found
from interp.circuit.edge_forward import EdgeForward
from interp.circuit.residual_graph import ResidualGraph
from interp.discovery._attribution import Pair
from interp.discovery._gradients import Passes

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray


def helping(task: ContrastTask, batch: Batch) -> Callable[[Tensor], Tensor]:
    """The batch's value, turned so that higher is better."""
    return batch.value if task.task.higher_is_better else lambda logits: -batch.value(logits)


def by_gradient(
    model: Model,
    task: ContrastTask,
    level: str,
    nodes: Callable[[Pair], Float[Tensor, "batch writer"]],
    edges: Callable[[Pair], Float[Tensor, "batch reader writer"]],
    *,
    signed: bool = True,
    notes: tuple[str, ...] = (),
) -> Found:
    """Scores of all writers, and of all edges at that level, by a function of a pair of runs."""
    graph, passes = ResidualGraph.of(model), Passes()
    found = np.zeros((len(graph.writers), len(task)))
    names = graph.edges if level == "edge" else ()
    of_edges = np.zeros((len(names), len(task))) if names else None
    at = _places(graph) if names else None
    for batch in task.batches():
        share = len(batch.which) / len(task)
        own = Passes()
        pair = Pair(graph, batch.clean, batch.corrupted, helping(task, batch), own)
        columns = list(batch.which)
        if of_edges is None or at is None:
            found[:, columns] = nodes(pair).detach().double().cpu().numpy().T
        else:
            scores = edges(pair).detach().double().cpu().numpy()
            found[:, columns] = scores.sum(1).T  # what a node's edges do in sum
            of_edges[:, columns] = scores[:, at[0], at[1]].T
        passes.forwards += own.forwards * share
        passes.backwards += own.backwards * share
    return Found(
        graph.writers, found, task.task.unit, names, of_edges, passes.forwards, passes.backwards,
        signed, notes,
    )  # fmt: skip


def _places(graph: ResidualGraph) -> tuple[Array, Array]:
    """Reader and writer number of every edge, in the graph's order."""
    readers = [graph.reader_index[b] for _, b in graph.edges]
    writers = [graph.index[a] for a, _ in graph.edges]
    return np.array(readers), np.array(writers)


def forwards_of(
    model: Model,
    task: ContrastTask,
    measure: Callable[[EdgeForward, Callable[[Tensor], Tensor]], Float[Tensor, "row batch"]],
    rows: int,
    *,
    denoise: bool = False,
) -> tuple[Float[Array, "row prompt"], float]:
    """Real forwards of every batch, and how many passes over all prompts they were."""
    graph, found, passes = ResidualGraph.of(model), np.zeros((rows, len(task))), 0.0
    for batch in task.batches():
        edges = EdgeForward(graph, batch.clean, batch.corrupted, denoise=denoise)
        with torch.no_grad():
            values = measure(edges, helping(task, batch))
        found[:, list(batch.which)] = values.double().cpu().numpy()
        passes += edges.forwards * len(batch.which) / len(task)
    return found, passes
