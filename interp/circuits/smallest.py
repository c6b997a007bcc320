"""Smallest set of nodes, and of edges between them, that keeps a share of the behaviour.

    found = smallest_set(model, circuit, task, faithful=0.8)   # the circuit with the set marked

Nodes outside the set carry their corrupted values, MLPs and embeddings included; so do edges
outside it. A set keeps a share of 0.8 if its faithfulness lies between 0.8 and 1.2: one that does
the task better than the model, because it leaves out what works against it, explains it no better.
The set is the shortest start of a ranking that keeps the share, found by bisection: a smaller set
that is no start of the ranking may exist. It is selected on these pairs, so judge it on others,
with `evaluate_set`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.chosen_set import Edge, NodeSet
from interp.circuits.identity import model_content, of_task
from interp.circuits.kept_steps import Kept
from interp.circuits.nodes import node_of
from interp.circuits.patched_runs import PatchedRuns
from interp.circuits.steps import Progress, following
from interp.core.errors import OptionError
from interp.model.given import takes_model

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.circuits.residual_graph import ResidualGraph
    from interp.circuits.result import Circuit
    from interp.model.model import Model

FAITHFUL = 0.8
IDLE = 0.005  # share of the gap below which an edge counts as doing nothing
_FAR = 4  # ratio of the ends of a bisection above which it takes their geometric mean
NODES, EDGES = "smallest set of nodes", "smallest set of edges"


def check_share(faithful: float, size: int) -> None:
    """Raise unless a share lies between 0 and 1 and a size is not negative.

    Raises:
        OptionError: One of them does not.
    """
    if not 0 < faithful < 1 or size < 0:
        raise OptionError(
            f"faithful={faithful}, size={size}; the share of the behaviour to keep lies between 0"
            " and 1, and the number of nodes is 1 or more (0: as few as keep the share)"
        )


def first_enough(
    kept: Callable[[int], float], n: int, within: float, most: float, known: float = 1.0
) -> tuple[int, float]:
    """Return the smallest number of first items whose faithfulness is near 1, by bisection.

    Args:
        kept: Faithfulness of the first k items, measured by one forward pass.
        n: Number of items, which together have the faithfulness `known`.
        within: Largest distance of the faithfulness from 1, to either side.
        most: Largest number of forward passes.
        known: Faithfulness of all items.
    """
    low, high, value = 0, n, known
    while high - low > 1 and most >= 1:
        middle = (low + high) // 2
        if high > _FAR * max(low, 1):
            middle = round(math.sqrt(max(low, 1) * high))
        middle = min(max(middle, low + 1), high - 1)
        found = kept(middle)
        most -= 1
        enough = abs(1 - found) <= within
        low, high, value = (low, middle, found) if enough else (middle, high, value)
    return high, value


def connected(edges: Sequence[Edge]) -> tuple[Edge, ...]:
    """Keep the edges on a path from the embeddings to the logits; others change nothing."""
    forward, backward = {"embed"}, {"logits"}
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


def share_kept(runs: PatchedRuns, mask: Any, stage: str) -> float:
    """Measure the faithfulness of a mask by one forward pass.

    Raises:
        OptionError: Clean and corrupted prompts have the same value.
    """
    if abs(runs.gap) < 1e-9:
        raise OptionError(
            f"{runs.task.name}: clean and corrupted prompts have the same value on average, so no"
            " share of their difference can be kept; use other pairs"
        )
    return float(runs.kept([mask], stage).mean() / runs.gap)


def choose_nodes(
    runs: PatchedRuns,
    ranking: Sequence[str],
    *,
    faithful: float = FAITHFUL,
    size: int = 0,
    most: float = math.inf,
) -> NodeSet:
    """Choose the first nodes of a ranking that keep a share, with all edges between them.

    If not even all of them keep it, the set is all of them.

    Args:
        runs: The runs to measure on.
        ranking: Nodes in order; nodes outside it are outside the set.
        faithful: Share of the behaviour to keep.
        size: Number of nodes, if it is given instead of the share.
        most: Largest number of forward passes.
    """
    ranking = [name for name in ranking if name in runs.graph.index]

    def kept(k: int) -> float:
        return share_kept(runs, runs.only(ranking[:k]), NODES)

    every = len(ranking) == len(runs.graph.writers)  # then the set is the model
    if size:
        size = min(size, len(ranking))
        value = 1.0 if every and size == len(ranking) else kept(size)
    else:
        whole = 1.0 if every else kept(len(ranking))
        most = most if every else most - 1
        size, value = first_enough(kept, len(ranking), 1 - faithful, most, whole)
    nodes = tuple(sorted(ranking[:size], key=runs.graph.index.__getitem__))
    edges = connected(edges_between(runs.graph, nodes))
    return NodeSet(nodes, edges, value, faithful, separated=False)


def choose_edges(
    runs: PatchedRuns,
    chosen: NodeSet,
    score: Mapping[Edge, float],
    *,
    faithful: float = FAITHFUL,
    most: float = math.inf,
) -> NodeSet:
    """Choose the edges of largest score, of those between chosen nodes, that keep a share.

    Args:
        runs: The runs to measure on.
        chosen: The nodes, and all edges between them.
        score: Scores of edges; those without one come last.
        faithful: Share of the behaviour to keep.
        most: Largest number of forward passes.
    """
    order = sorted(chosen.edges, key=lambda e: -abs(score.get(e, 0.0)))
    within = max(1 - faithful, abs(1 - chosen.kept))  # a set of given size may be further away
    number, kept = first_enough(
        lambda k: share_kept(runs, runs.graph.mask(order[:k]), EDGES), len(order), within, most,
        chosen.kept,
    )  # fmt: skip
    return with_edges(runs, chosen, order[:number], kept, faithful)


def without_idle_edges(
    runs: PatchedRuns, chosen: NodeSet, score: Mapping[Edge, float], most: float
) -> NodeSet:
    """Drop edges that do nothing in the set either, of those that do nothing in the model.

    An edge whose effect a backup hides stays: without it the set does less.

    Args:
        runs: The runs to measure on.
        chosen: The set.
        score: Measured effects of its edges in the model.
        most: Largest number of forward passes, one for each such edge.
    """
    size = {edge: abs(score[edge]) for edge in chosen.edges}
    idle = sorted((e for e in size if size[e] < IDLE * abs(runs.gap)), key=size.__getitem__)
    for edge in idle[: int(min(most, len(idle)))]:
        if edge in chosen.edges:  # not dropped since, with another on whose path it lay
            rest = connected([other for other in chosen.edges if other != edge])
            kept = share_kept(runs, runs.graph.mask(rest), EDGES)
            if abs(kept - chosen.kept) < IDLE:
                chosen = with_edges(runs, chosen, rest, kept, chosen.asked)
    return chosen


def with_edges(
    runs: PatchedRuns, chosen: NodeSet, edges: Sequence[Edge], kept: float, asked: float
) -> NodeSet:
    """Make the set of some edges of a set, and of the nodes at their ends."""
    some = connected(edges)
    places = {e: i for i, e in enumerate(runs.graph.edges)}
    ends = {name for a, b in some for name in (a, node_of(b))}
    nodes = tuple(n for n in chosen.nodes if n in ends)
    return NodeSet(nodes, tuple(sorted(some, key=places.__getitem__)), kept, asked)


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

    Nodes in the order of `Circuit.ranking` are added until the set keeps the share, while all
    others, MLPs and embeddings included, carry their corrupted values; then as many of the edges
    between them as keep it. The tables `smallest`, `smallest_nodes` and `smallest_edges` of the
    returned circuit have the set.

    Args:
        model: The model that the circuit was found in.
        circuit: The circuit; without edges, all edges between the nodes are kept.
        task: The pairs of prompts to select on.
        faithful: Share of the difference between clean and corrupted that the set keeps.
        size: Number of nodes, instead of the share.
        resume: A folder that stores finished forward passes; the same call reuses them.
        progress: Called with the name of the current work, how much is done and how much there is.

    Raises:
        OptionError: The circuit is of another model, the share is not between 0 and 1, or clean and
            corrupted prompts have the same value.
        UnreadableAttention: The model has no residual graph.
    """
    check_share(faithful, size)
    circuit.require(model)
    scores = dict(zip(circuit.edges, np.nan_to_num(circuit.edge_score).tolist(), strict=True))
    store = None
    if resume is not None:
        own = {"smallest": [faithful, size, list(circuit.ranking)],
               "edges": [[*edge, score] for edge, score in scores.items()]}  # fmt: skip
        store = Kept(resume, model_content(model) | of_task(model, task) | own)
    with following(store, progress):
        runs = PatchedRuns(model, task)
        rest = [name for name in runs.graph.writers if name not in circuit.nodes]
        on_graph = {e: s for e, s in scores.items() if e[1] in runs.graph.reader_index}
        found = choose_nodes(runs, [*circuit.ranking, *rest], faithful=faithful, size=size)
        if on_graph:
            found = choose_edges(runs, found, on_graph, faithful=faithful)
    return replace(circuit, tables=dict(circuit.tables) | found.tables(runs.stages))
