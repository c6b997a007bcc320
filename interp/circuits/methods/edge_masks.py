"""Edge masks trained by gradient descent with a target for the share of edges that stay."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.circuits.declaration import Found, discovery
from interp.circuits.methods._divergence import require_measure
from interp.circuits.methods._trained_masks import MaskObjective, Training, fit_mask
from interp.circuits.nodes import Edge, NodeSet, Share
from interp.circuits.patched_runs import PatchedRuns
from interp.circuits.smallest import connected, edges_between
from interp.circuits.steps import counted, step
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.circuits.residual_graph import ResidualGraph
    from interp.model.model import Model

HALF = 0.5  # gates above it stay after training
STAGE = "training masks"


@discovery(levels=("edge", "head"))
def edge_masks(
    model: Model,
    task: ContrastTask,
    level: str,
    *,
    target: float = 0.05,
    metric: str = "kl",
    steps: int = 300,
    rate: float = 0.1,
    restarts: int = 2,
    seed: int = 0,
) -> Found:
    """Train a gate on every edge, so that few edges keep the output of the model.

    Every query, key, value, MLP and the logits read the sum over writers of gate times the clean
    value plus one minus gate times the corrupted one. Hard concrete gates are trained on half of
    the pairs; two multipliers bring the expected share of open gates to the target, which moves
    there from all edges over the first 60 % of the steps. After training, gates above one half
    become 1, the others 0, and edges on no path from the embeddings to the logits are left out.
    The set of each restart is measured again on the other half (table `restarts`); the smallest
    set (tables `smallest`, `smallest_nodes`, `smallest_edges`) is that whose faithfulness there is
    nearest to 1. The score of an edge is its gate, one column per restart; that of a node is the
    largest gate of an edge that leaves it. At the level "head" each writer has one gate for all of
    its edges.

    target: share of the gates that stay open. metric: `kl`, the divergence from the model's output,
    or `task`, the task's measure. steps, rate: of Adam. restarts: fits, each with its own start and
    noise. seed: seed of both, and of the halves.

    Cost: `restarts` times `steps` forward and backward passes, each over as many copies of the
    batch as a layer has readers.

    Not for: the size of one edge's effect: gates say what stays at this target, not how much it
    does; sets of equal quality differ between restarts.

    Reference: Bhaskar et al. 2024, "Finding Transformer Circuits with Edge Pruning" (arXiv
    2406.16778); Cao et al. 2021 (arXiv 2104.03514); gates as in Louizos et al. 2018.
    """
    _check(target, metric, steps, rate, restarts)
    *choosing, second = task.parts(seed)
    first = np.union1d(*choosing)
    runs = PatchedRuns(model, task, parts=(first, second))
    graph = runs.graph
    names, places = _gates(graph, level)
    objective = MaskObjective(graph, task.some(first.tolist()), places, metric)
    training, rows, sets, gates = Training(target, steps, rate, metric), [], [], []
    shares: list[Share] = []
    with counted(STAGE, restarts * steps) as done:
        for number in range(restarts):
            restart_seed = seed * 1000 + number
            kept = step(STAGE, partial(_fitted, objective, len(names), training, restart_seed))
            done((number + 1) * steps)
            gates.append(kept["gate"])
            open_edges = _set(
                graph, level, [n for n, g in zip(names, kept["gate"], strict=True) if g > HALF]
            )
            sets.append(open_edges)
            row: dict[str, Any] = {
                "restart": number,
                "edges": len(open_edges),
                "open": kept["open"],
            }
            shares.append(runs.share(graph.mask(open_edges), "result"))
            rows.append(
                row
                | {
                    "fitted": shares[-1].own,
                    "held_out": shares[-1].value,
                    "held_out_pairs": len(second),
                }
            )
    if not any(sets):
        raise OptionError(
            f"no path from the embeddings to the logits stays open in any of {restarts} restarts at"
            f" target={target}; give a larger target, or more steps"
        )
    spent = restarts * steps * len(first) / len(task) / len(objective.soft)
    runs.count(STAGE, spent, spent)
    far = [abs(1 - row["held_out"]) if s else math.inf for row, s in zip(rows, sets, strict=True)]
    best = int(np.argmin(far))
    chosen = _node_set(runs, sets[best], shares[best], level)
    table = np.stack(gates, 1)
    of_nodes = np.zeros((len(graph.writers), restarts))
    for (writer, _), gate in zip(names, table, strict=True):
        at = graph.index[writer]
        of_nodes[at] = np.maximum(of_nodes[at], gate)
    tables = chosen.tables(runs.stages) | {"restarts": rows}
    edges = {"edges": graph.edges, "edges_per_prompt": table} if level == "edge" else {}
    return Found(
        graph.writers,
        of_nodes,
        "gate",
        forwards=runs.forwards,
        backwards=runs.backwards,
        signed=False,
        tables=tables,
        columns="restarts",
        measured="trained gate",
        notes=(_note(rows, sets, best, target, len(names), level), *graph.norm_notes()),
        **edges,
    )


def _check(target: float, metric: str, steps: int, rate: float, restarts: int) -> None:
    require_measure(metric)
    if not 0 < target < 1:
        raise OptionError(f"target={target}; the share of open gates lies between 0 and 1")
    if min(steps, restarts) < 1 or not (math.isfinite(rate) and rate > 0):
        raise OptionError(
            f"steps={steps}, restarts={restarts}, rate={rate}; give at least 1, 1 and a rate above"
            " 0"
        )


def _gates(graph: ResidualGraph, level: str) -> tuple[list[Edge], list[torch.Tensor]]:
    """Name the gates, each with the flat numbers of its entries of the mask."""
    width = len(graph.writers)
    if level == "edge":
        at = [graph.reader_index[b] * width + graph.index[a] for a, b in graph.edges]
        return list(graph.edges), [torch.tensor([i]) for i in at]
    full = graph.full()
    places = [full[:, i].nonzero().flatten() * width + i for i in range(width)]
    return [(name, "") for name in graph.writers], places


def _fitted(objective: MaskObjective, n: int, training: Training, seed: int) -> dict[str, Any]:
    fit = fit_mask(objective, n, training, seed)
    return {"gate": fit.gate, "open": fit.open, "loss": fit.loss}


def _set(graph: ResidualGraph, level: str, kept: list[Edge]) -> tuple[Edge, ...]:
    return connected(kept if level == "edge" else edges_between(graph, [a for a, _ in kept]))


def _node_set(runs: PatchedRuns, edges: tuple[Edge, ...], share: Share, level: str) -> NodeSet:
    ends = {name for a, b in edges for name in (a, b.partition(".")[0])}
    nodes = tuple(n for n in runs.graph.writers if n in ends)
    return NodeSet(nodes, edges, share, 0.0, len(runs.held), runs.apart, separated=level == "edge")


def _note(
    rows: list[dict[str, Any]],
    sets: list[tuple[Edge, ...]],
    best: int,
    target: float,
    n: int,
    level: str,
) -> str:
    others = [set(s) for i, s in enumerate(sets) if i != best]
    mine = set(sets[best])
    overlap = [len(mine & x) / max(1, len(mine | x)) for x in others]
    what = "edges" if level == "edge" else "nodes"
    text = (
        f"restart {best} of {len(rows)}: {rows[best]['edges']} edges stay, faithfulness"
        f" {rows[best]['held_out']:.2f} on {rows[best]['held_out_pairs']} pairs it was not fitted"
        f" on ({rows[best]['fitted']:.2f} on its own); target {target:.3g} of {n} {what},"
        f" {rows[best]['open']:.3g} open in expectation"
    )
    return text + (
        f"; overlap with other restarts (Jaccard) {np.mean(overlap):.2f}" if overlap else ""
    )
