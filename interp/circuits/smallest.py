"""Smallest set of nodes, and of edges between them, that keeps a share of the behaviour.

    found = smallest_set(model, circuit, task, faithful=0.8)   # the circuit with the set marked

Nodes outside the set carry their corrupted values, MLPs and embeddings included; so do edges
outside it. A set keeps a share of 0.8 if its faithfulness lies between 0.8 and 1.2: one that does
the task better than the model, because it leaves out what works against it, explains it no better.
The search starts from the first nodes of a ranking that keep the share, removes nodes one by one
and in pairs, and exchanges two for one, as long as the rest keeps it (`Subsets`). One part of the
pairs makes the ranking, and the share must be kept there and on a second part, by the estimate: no
node or edge of the set can leave it. The third part, half of the pairs, takes no part in this; the
share that is stated and its interval are those of these pairs. `evaluate_set` measures the set on
new pairs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from interp.circuits.contrast import hashes
from interp.circuits.identity import model_content, of_task
from interp.circuits.nodes import WHOLE, Edge, NodeSet, larger_effect, node_of
from interp.circuits.patched_runs import PatchedRuns
from interp.circuits.steps import following
from interp.circuits.stored_steps import Kept
from interp.circuits.subsets import Subsets
from interp.core.errors import OptionError
from interp.core.protocols import Progress
from interp.core.ties import ordered, ordered_by
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.circuits.residual_graph import ResidualGraph
    from interp.circuits.result import Circuit
    from interp.model.model import Model

FAITHFUL = 0.8
IDLE = 0.005  # share of the gap below which a node or edge counts as doing nothing
NODES, EDGES = "smallest set of nodes", "smallest set of edges"


def check_share(faithful: float, size: int) -> None:
    """Raise unless a share lies between 0 and 1 and a size is not negative."""
    if not 0 < faithful < 1 or size < 0:
        raise OptionError(
            f"faithful={faithful}, size={size}; the share of the behaviour to keep lies between 0"
            " and 1, and the number of nodes is 1 or more (0: as few as keep the share)"
        )


def connected(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Keep the edges on a path from the embeddings to the logits; others change nothing."""
    edges, forward, backward = tuple(edges), {"embed"}, {"logits"}
    while True:
        more = {node_of(b) for a, b in edges if a in forward} - forward
        less = {a for a, b in edges if node_of(b) in backward} - backward
        if not more and not less:
            break
        forward |= more
        backward |= less
    return tuple((a, b) for a, b in edges if a in forward and node_of(b) in backward)


def edges_between(graph: ResidualGraph, nodes: Sequence[str]) -> tuple[Edge, ...]:
    """Return the edges that lead from one of some nodes to another, or to the logits."""
    keep = {*nodes, "logits"}
    return tuple((a, b) for a, b in graph.edges if a in keep and node_of(b) in keep)


def choose_nodes(
    runs: PatchedRuns,
    ranking: Sequence[str],
    *,
    faithful: float = FAITHFUL,
    size: int = 0,
    most: float = math.inf,
) -> NodeSet:
    """Choose as few nodes as keep a share, or the first of a ranking, with all edges between them.

    If not even all of them keep it, the set is all of them.
    """
    runs.require_gap()
    order = [name for name in ranking if name in runs.graph.index]
    order = order[:size] if size else order
    every = len(order) == len(runs.graph.writers)  # then the set is the model
    chosen = NodeSet((), (), WHOLE, faithful, len(runs.held), runs.apart, separated=False)
    chosen = replace(chosen, shared=runs.task.said_of(runs.held))
    chosen = replace(chosen, share=WHOLE if every else runs.share(runs.only(order), NODES))
    if not size and chosen.reached:
        search = Subsets(runs, runs.only, NODES, (faithful, 2 - faithful), most - 2)
        fewer = search.smallest(order)
        share = runs.share(runs.only(fewer), NODES) if len(fewer) < len(order) else chosen.share
        chosen, order = replace(chosen, share=share, minimal=search.complete), fewer
    nodes = tuple(sorted(order, key=runs.graph.index.__getitem__))
    return replace(chosen, nodes=nodes, edges=connected(edges_between(runs.graph, nodes)))


def choose_edges(
    runs: PatchedRuns, chosen: NodeSet, score: Mapping[Edge, float], *, most: float = math.inf
) -> NodeSet:
    """Choose as few edges as keep the share, of those between chosen nodes that have a score.

    A set that does not keep it, as one of given size may not, comes no further away from 1.
    """
    away = 1 - chosen.asked if chosen.reached else abs(1 - chosen.share.own)
    between = 1 - away, 1 + away
    search = Subsets(runs, runs.graph.mask, EDGES, between, most - 1, core=connected)
    order = ordered_by(score, lambda edge: abs(score[edge]), scale=abs(runs.gap))

    def of_nodes(edges: Sequence[Edge]) -> list[list[Edge]]:
        return [[e for e in edges if name in (e[0], node_of(e[1]))] for name in chosen.nodes]

    return with_edges(runs, chosen, search.smallest(order, of_nodes), search.complete)


def first_edges(
    runs: PatchedRuns, chosen: NodeSet, bound: Mapping[Edge, float], most: float
) -> list[Edge]:
    """Return the edges of largest bound that keep the share, by bisection."""
    search = Subsets(runs, runs.graph.mask, EDGES, (chosen.asked, 2 - chosen.asked), most)
    order = ordered_by(chosen.edges, bound.__getitem__)
    return order[: search.first(order)]


def with_edges(runs: PatchedRuns, chosen: NodeSet, edges: Sequence[Edge], minimal: bool) -> NodeSet:
    """Make the set of some edges of a set, and of the nodes at their ends, and measure it."""
    some = connected(edges)
    places = {e: i for i, e in enumerate(runs.graph.edges)}
    ends = {name for a, b in some for name in (a, node_of(b))}
    nodes = tuple(n for n in chosen.nodes if n in ends)
    some = tuple(sorted(some, key=places.__getitem__))
    share = runs.share(runs.graph.mask(some), EDGES)
    minimal = minimal and chosen.minimal
    return replace(chosen, nodes=nodes, edges=some, share=share, separated=True, minimal=minimal)


@takes_model
def smallest_set(
    model: Model,
    circuit: Circuit,
    task: ContrastTask,
    *,
    faithful: float = FAITHFUL,
    size: int = 0,
    resume: str | os.PathLike | None = None,
    progress: Progress | None = None,
) -> Circuit:
    """Mark the smallest set of a circuit's first nodes and edges that keeps a share of a task.

    The search starts from the first nodes in the order of their scores that keep the share, while
    all others, MLPs and embeddings included, carry their corrupted values, and removes what can
    leave; then the same among the edges between them. If the circuit was found on these pairs, only
    some of them order, and the share is stated on others; a method with one score for all pairs
    used them all, and the set says so. The tables `smallest`, `smallest_nodes` and `smallest_edges`
    of the returned circuit have the set.
    """
    check_share(faithful, size)
    circuit.require(model)
    known = circuit.made.get("pairs") or ()
    parts, ranking, score = task.parts(), circuit.ranking, circuit.edge_score
    shared = bool(set(known) & set(hashes(task)))
    if circuit.per_prompt is not None and list(known) == hashes(task):
        shared, per_item = False, circuit.per_prompt[:, parts[0]].mean(1)
        of_nodes, score = per_item[: len(circuit.nodes)], per_item[len(circuit.nodes) :]
        size_of = np.abs(larger_effect(of_nodes, circuit.conditional))
        ranking = tuple(circuit.nodes[i] for i in ordered(size_of))
    scores = dict(zip(circuit.edges, np.nan_to_num(score).tolist(), strict=True))
    store = None
    if resume is not None:
        settings = {
            "smallest": [faithful, size, list(ranking)],
            "edges": [[*edge, score] for edge, score in scores.items()],
        }
        store = Kept(resume, model_content(model) | of_task(model, task) | settings)
    with following(store, progress):
        runs = PatchedRuns(model, task, parts=parts)
        runs.apart &= not shared
        rest = [name for name in runs.graph.writers if name not in circuit.nodes]
        choice = choose_nodes(runs, [*ranking, *rest], faithful=faithful, size=size)
        if any(reader in runs.graph.reader_index for _, reader in scores):
            choice = choose_edges(runs, choice, {e: scores.get(e, 0.0) for e in choice.edges})
    return replace(circuit, tables=dict(circuit.tables) | choice.tables(runs.stages))
