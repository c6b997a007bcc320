"""Collection of batch results into scores per pair, for methods on the residual graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuits.contrast import ContrastTask
from interp.circuits.contrast_batch import BatchValue, ContrastBatch
from interp.circuits.declaration import Found
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.methods._attribution import RunPair, Units
from interp.circuits.methods._gradients import Passes
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.steps import counted, step

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray
Tables = Mapping[str, list[dict[str, Any]]]


def helping(task: ContrastTask, batch: ContrastBatch) -> BatchValue:
    """Return the batch's value function, negated if lower is better."""
    return batch.value if task.task.higher_is_better else replace(batch.value, sign=-1)


def by_gradient(
    model: Model,
    task: ContrastTask,
    level: str,
    nodes: Callable[[RunPair], Float[Tensor, "batch writer"]],
    edges: Callable[[RunPair], Float[Tensor, "batch reader writer"]],
    *,
    units: Units,
    what: str = "gradients",
    signed: bool = True,
    frozen: bool = False,
    tables: Callable[[list[Mapping[str, Array]]], Tables] = lambda rows: {},
) -> Found:
    """Score all writers, and at the level "edge" all edges, by a function of a pair of runs.

    `frozen`: the functions hold the scales of norms.
    """
    graph, passes = ResidualGraph.of(model), Passes()
    of_nodes = np.zeros((len(graph.writers), len(task)))
    names = graph.edges if level == "edge" else ()
    of_edges = np.zeros((len(names), len(task))) if names else None
    at = _places(graph) if names else None

    def scored(batch: ContrastBatch) -> tuple[Array, Array | None, float, float, dict[str, Array]]:
        passes = Passes()
        pair = RunPair(graph, batch.clean, batch.corrupted, helping(task, batch), passes)
        if at is None:
            scores, of_edges = _numpy(nodes(pair)), None
        else:
            every = _numpy(edges(pair))
            scores, of_edges = (
                every.sum(1),
                every[:, at[0], at[1]],
            )  # a node's score is the sum over its edges
        return scores, of_edges, passes.forwards, passes.backwards, pair.rows

    batches, rows = list(task.batches()), []
    each = units(graph, level)
    with counted(what, each * len(batches)) as done:
        for i, batch in enumerate(batches):
            scores, some, forwards, backwards, kept = step(what, partial(scored, batch))
            columns, share = list(batch.which), len(batch.which) / len(task)
            of_nodes[:, columns] = scores.T
            if of_edges is not None and some is not None:
                of_edges[:, columns] = some.T
            passes.forwards += forwards * share
            passes.backwards += backwards * share
            rows.append(kept)
            done(each * (i + 1))
    return Found(
        graph.writers,
        of_nodes,
        task.task.unit,
        names,
        of_edges,
        passes.forwards,
        passes.backwards,
        signed,
        graph.norm_notes("its scale is held" if frozen else "gradients go through it"),
        tables(rows),
        measured="estimated by gradients, not patched",
    )


def _numpy(x: Tensor) -> Array:
    return x.detach().double().cpu().numpy()


def _places(graph: ResidualGraph) -> tuple[Array, Array]:
    """Return the reader and writer number of every edge, in the graph's order."""
    readers = [graph.reader_index[b] for _, b in graph.edges]
    writers = [graph.index[a] for a, _ in graph.edges]
    return np.array(readers), np.array(writers)


def forwards_of(
    model: Model,
    task: ContrastTask,
    measure: Callable[[EdgeForward, Callable[[Tensor], Tensor]], Float[Tensor, "row batch"]],
    rows: int,
    *,
    what: str,
    denoise: bool = False,
) -> tuple[Float[Array, "row prompt"], float]:
    """Measure every batch by forward passes, and count the passes over all prompts."""
    graph, per_prompt, passes = ResidualGraph.of(model), np.zeros((rows, len(task))), 0.0

    def measured(batch: ContrastBatch) -> tuple[Array, int]:
        edges = EdgeForward(
            graph,
            batch.clean,
            batch.corrupted,
            denoise=denoise,
            read_at=batch.read_at,
            columns=task.task.vocabulary,
        )
        with torch.no_grad():
            values = measure(edges, helping(task, batch))
        return _numpy(values), edges.forwards

    batches = list(task.batches())
    with counted(what, rows * len(batches)) as done:
        for i, batch in enumerate(batches):
            values, forwards = step(what, partial(measured, batch))
            per_prompt[:, list(batch.which)] = values
            passes += forwards * len(batch.which) / len(task)
            done(rows * (i + 1))
    return per_prompt, passes
