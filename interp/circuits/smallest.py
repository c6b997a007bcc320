"""Smallest set of nodes, and of edges between them, that keeps a share of the behaviour.

    found = smallest_set(model, circuit, task, faithful=0.8)   # the circuit with the set marked

Nodes outside the set carry their corrupted values, MLPs and embeddings included; so do edges
outside it. A set keeps a share of 0.8 if its faithfulness lies between 0.8 and 1.2: one that does
the task better than the model, because it leaves out what works against it, explains it no better.
The set is the shortest start of a ranking that is shown to keep the share, found by bisection: a
smaller set that is no start of the ranking may exist. One half of the pairs makes the ranking. The
other half decides how much of it belongs to the set: the 95 % interval of the share there must not
reach below the share that was asked; nor may the share on the first half. So the set keeps it on
other pairs too, and few pairs, whose intervals are wide, give a larger set. `evaluate_set` measures
the set on new pairs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from interp.circuits.contrast import hashes
from interp.circuits.identity import model_content, of_task
from interp.circuits.nodes import WHOLE, Edge, NodeSet, Share, larger_effect, node_of
from interp.circuits.patched_runs import PatchedRuns
from interp.circuits.steps import following
from interp.circuits.stored_steps import Kept
from interp.core.errors import OptionError
from interp.core.protocols import Progress
from interp.core.ties import ordered, ordered_by, reaches
from interp.model.model_argument import takes_model

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
    """Raise unless a share lies between 0 and 1 and a size is not negative."""
    if not 0 < faithful < 1 or size < 0:
        raise OptionError(
            f"faithful={faithful}, size={size}; the share of the behaviour to keep lies between 0"
            " and 1, and the number of nodes is 1 or more (0: as few as keep the share)"
        )


def first_enough(
    kept: Callable[[int], Share],
    n: int,
    enough: Callable[[Share], bool],
    most: float,
    known: Share = WHOLE,
) -> tuple[int, Share]:
    """Return the smallest number of first items that keep enough, by bisection."""
    low, high, value = 0, n, known
    while high - low > 1 and most >= 1:
        middle = (low + high) // 2
        if high > _FAR * max(low, 1):
            middle = round(math.sqrt(max(low, 1) * high))
        middle = min(max(middle, low + 1), high - 1)
        share = kept(middle)
        most -= 1
        low, high, value = (low, middle, share) if enough(share) else (middle, high, value)
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
    """
    ranking = [name for name in ranking if name in runs.graph.index]

    def kept(k: int) -> Share:
        return runs.share(runs.only(ranking[:k]), NODES)

    every = len(ranking) == len(runs.graph.writers)  # then the set is the model
    if size:
        size = min(size, len(ranking))
        value = WHOLE if every and size == len(ranking) else kept(size)
    else:
        whole = WHOLE if every else kept(len(ranking))
        most = most if every else most - 1
        size, value = first_enough(
            kept, len(ranking), lambda share: share.reaches(faithful), most, whole
        )
    nodes = tuple(sorted(ranking[:size], key=runs.graph.index.__getitem__))
    edges = connected(edges_between(runs.graph, nodes))
    return NodeSet(nodes, edges, value, faithful, len(runs.second), runs.apart, separated=False)


def choose_edges(
    runs: PatchedRuns,
    chosen: NodeSet,
    score: Mapping[Edge, float],
    *,
    faithful: float = FAITHFUL,
    most: float = math.inf,
) -> NodeSet:
    """Choose the edges of largest score, of those between chosen nodes, that keep a share."""
    order = ordered_by(chosen.edges, lambda e: abs(score.get(e, 0.0)), scale=abs(runs.gap))
    reached = chosen.share.reaches(faithful)  # a set of given size may be further away

    def enough(share: Share) -> bool:
        return share.reaches(faithful) if reached else abs(1 - share.value) <= abs(1 - chosen.kept)

    number, kept = first_enough(
        lambda k: runs.share(runs.graph.mask(order[:k]), EDGES),
        len(order),
        enough,
        most,
        chosen.share,
    )
    return with_edges(runs, chosen, order[:number], kept)


def without_idle_nodes(
    runs: PatchedRuns, chosen: NodeSet, score: Mapping[str, float], most: float
) -> NodeSet:
    """Drop nodes that do nothing in the set either, of those that do nothing in the model.

    Where the task needs several conditions at once, a node that it needs may do nothing alone, and
    is ranked with those that it does not need. These are tried together, and in halves where the
    set does less without them.
    """
    idle = [n for n in chosen.nodes if abs(score.get(n, 0.0)) < IDLE * abs(runs.gap)]
    groups = [idle] if idle and chosen.share.reaches(chosen.asked) else []
    while groups and most >= 1:
        group = groups.pop()
        rest = [name for name in chosen.nodes if name not in group]
        kept = runs.share(runs.only(rest), NODES)
        most -= 1
        moved = max(abs(kept.value - chosen.kept), abs(kept.own - chosen.share.own))
        if kept.reaches(chosen.asked) and moved < IDLE:
            edges = connected(edges_between(runs.graph, rest))
            chosen = replace(chosen, nodes=tuple(rest), edges=edges, share=kept)
        elif len(group) > 1:
            half = len(group) // 2
            groups += [group[:half], group[half:]]
    return chosen


def without_idle_edges(
    runs: PatchedRuns, chosen: NodeSet, score: Mapping[Edge, float], most: float
) -> NodeSet:
    """Drop edges that do nothing in the set either, of those that do nothing in the model.

    An edge whose effect a backup hides stays: without it the set does less.
    """
    size = {edge: abs(score[edge]) for edge in chosen.edges}
    some = [edge for edge in size if not reaches(size[edge], IDLE * abs(runs.gap))]
    idle = ordered_by(some, size.__getitem__, lowest=True, scale=abs(runs.gap))
    for edge in idle[: int(min(most, len(idle)))]:
        if edge in chosen.edges:  # not dropped since, with another on whose path it lay
            rest = connected([other for other in chosen.edges if other != edge])
            kept = runs.share(runs.graph.mask(rest), EDGES)
            still = kept.reaches(chosen.asked) or not chosen.share.reaches(chosen.asked)
            moved = max(abs(kept.value - chosen.kept), abs(kept.own - chosen.share.own))
            if still and moved < IDLE:
                chosen = with_edges(runs, chosen, rest, kept)
    return chosen


def with_edges(runs: PatchedRuns, chosen: NodeSet, edges: Sequence[Edge], share: Share) -> NodeSet:
    """Make the set of some edges of a set, and of the nodes at their ends."""
    some = connected(edges)
    places = {e: i for i, e in enumerate(runs.graph.edges)}
    ends = {name for a, b in some for name in (a, node_of(b))}
    nodes = tuple(n for n in chosen.nodes if n in ends)
    some = tuple(sorted(some, key=places.__getitem__))
    return replace(chosen, nodes=nodes, edges=some, share=share, separated=True)


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

    Nodes are added in the order of their scores until the set keeps the share, while all others,
    MLPs and embeddings included, carry their corrupted values; then as many of the edges between
    them as keep it. If the circuit was found on these pairs, one half of them makes the order and
    the other half decides; a method with one score for all pairs has no halves, and the set says
    so. The tables `smallest`, `smallest_nodes` and `smallest_edges` of the
    returned circuit have the set.
    """
    check_share(faithful, size)
    circuit.require(model)
    known = circuit.made.get("pairs") or ()
    halves, ranking, score = None, circuit.ranking, circuit.edge_score
    if circuit.per_prompt is not None and list(known) == hashes(task):
        halves = task.halves()
        per_item = circuit.per_prompt[:, halves[0]].mean(1)
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
        runs = PatchedRuns(model, task, halves=halves)
        runs.apart |= not set(known) & set(hashes(task)) and bool(known)
        rest = [name for name in runs.graph.writers if name not in circuit.nodes]
        on_graph = {e: s for e, s in scores.items() if e[1] in runs.graph.reader_index}
        choice = choose_nodes(runs, [*ranking, *rest], faithful=faithful, size=size)
        if on_graph:
            choice = choose_edges(runs, choice, on_graph, faithful=faithful)
    return replace(circuit, tables=dict(circuit.tables) | choice.tables(runs.stages))
