"""ACDC: greedy removal of edges from the logits backwards, while the task changes little."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.declaration import Found, discovery
from interp.circuits.methods._attribution import edges_along_inputs
from interp.circuits.methods._divergence import require_measure
from interp.circuits.methods._greedy import (
    KEPT,
    ORDERS,
    RULES,
    SCREENED,
    UNUSED,
    Edge,
    Removal,
    value_of,
)
from interp.circuits.nodes import NodeSet
from interp.circuits.patched_runs import BASE, PatchedRuns
from interp.circuits.smallest import connected, edges_between
from interp.core.errors import OptionError
from interp.core.ties import ordered

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model

SHARE = 0.01  # of clean minus corrupted: the default threshold
SCREEN = 2  # gradients that choose the candidates where max_evaluations is smaller than the graph
ENDS = 2  # passes to measure the corrupted run and the result
MOST_EDGES = 20_000


@discovery(levels=("edge", "head"))
def acdc(
    model: Model,
    task: ContrastTask,
    level: str,
    *,
    threshold: float | None = None,
    rule: str = "increase",
    metric: str = "task",
    parents: str = "late",
    max_evaluations: int = 0,
) -> Found:
    """Remove edges one by one, from the logits backwards, while the measure changes little.

    Readers are visited from the logits to the first layer. Each edge into a reader in turn carries
    its corrupted value: if the mean change, beyond all removals before, is below the threshold, the
    edge stays removed. The threshold bounds each change and not their sum. A node that nobody reads
    any more loses its edges without a forward pass. The kept edges are the smallest set (tables
    `smallest`, `smallest_nodes`, `smallest_edges`); the table `removals` has every decision in
    order. The score of a kept edge is what was lost when it was removed, and that of a removed edge
    is 0; a node's score is the sum over the kept edges that leave it. At the level "head" whole
    nodes are removed, with everything that they write.

    threshold: in the unit of the metric; by default 1 % of its change from clean to corrupted.
    rule: `increase` removes an edge if the loss grows by less than the threshold, so that removals
    that improve the task always stay; `absolute` if it changes by less to either side, so that
    edges that work against the task are kept too, and at threshold 0 every edge is. metric: `task`,
    the task's measure, or `kl`, the divergence from the model's output in nats. parents: order of
    the edges into one reader: the `late` writers first, or the `early` ones. max_evaluations:
    forward passes over all pairs; with fewer than there are edges, integrated gradients choose the
    edges that are tried, and the others are removed at the start; what that loses is measured, and
    a note says so (0: try all).

    Cost: At most a forward pass per edge; per node at the level "head".

    Not for: the one true circuit: the result depends on the order and on the threshold, and of
    heads that stand in for each other the ones that are tried first are removed.

    Reference: Conmy et al. 2023, "Towards Automated Circuit Discovery" (arXiv 2304.14997); the
    choice of candidates by gradients as in Syed et al. 2023 (arXiv 2310.10348).
    """
    require_measure(metric)
    for name, given, known in (("rule", rule, RULES), ("parents", parents, ORDERS)):
        if given not in known:
            raise OptionError(f"{name}={given!r}; expected {' or '.join(known)}")
    if threshold is not None and not (math.isfinite(threshold) and threshold >= 0):
        raise OptionError(f"threshold={threshold}; a threshold is 0 or more, in the metric's unit")
    least = BASE + ENDS + SCREEN + 1
    if max_evaluations < 0 or 0 < max_evaluations < least:
        raise OptionError(
            f"max_evaluations={max_evaluations}; the runs, the choice of edges and the result take"
            f" {least - 1} passes; give at least {least}, or 0 for as many as there are edges"
        )
    runs = PatchedRuns(model, task, max_evaluations or math.inf)
    graph = runs.graph
    none = runs.effects(
        [graph.full() * 0], "clean and corrupted runs", value=value_of(runs, metric)
    )[0]
    threshold = SHARE * abs(float(none.mean())) if threshold is None else threshold
    unit = task.task.unit if metric == "task" else "nats"
    search = Removal(runs, threshold, rule, metric, graph.full(), np.zeros(len(task)))
    if level == "edge":
        _screen(search, max_evaluations)
        search.edges(parents)
        every = graph.edges
    else:
        if max_evaluations and max_evaluations < BASE + ENDS + len(graph.writers):
            raise OptionError(
                f"max_evaluations={max_evaluations}; {model.name} has {len(graph.writers)} nodes,"
                f" and each needs a forward pass: give {BASE + ENDS + len(graph.writers)}, or 0"
            )
        search.nodes(parents)
        every = tuple((name, "") for name in graph.writers)
    chosen = _chosen(search, level, none, unit, every)
    lost = [search.change[e] if search.fate[e] == KEPT else np.zeros(len(task)) for e in every]
    of_edges = np.array(lost)
    nodes = np.zeros((len(graph.writers), len(task)))
    for (writer, _), x in zip(every, of_edges, strict=True):
        nodes[graph.index[writer]] += x
    tables = chosen.tables(runs.stages) | {"removals": _removals(search, level)}
    tables["smallest"][0] |= {"threshold": threshold, "rule": rule, "metric": metric}
    parts = tuple(_summary_of(search.fate[e]) for e in every)
    edges: dict[str, Any] = {}
    if level == "edge":
        edges = {"edges": every, "edges_per_prompt": of_edges, "edges_measured": parts}
    return Found(
        graph.writers,
        nodes,
        unit,
        forwards=runs.forwards,
        backwards=runs.backwards,
        tables=tables,
        notes=(_note(search, chosen, threshold, unit, level), *graph.norm_notes()),
        measured="removed after others: the sum over its kept edges" if level == "edge" else parts,
        **edges,
    )


def _screen(search: Removal, max_evaluations: int) -> None:
    """Remove the edges of smallest estimate, if there are more edges than forward passes."""
    runs, graph = search.runs, search.graph
    if not max_evaluations and len(graph.edges) > MOST_EDGES:
        raise OptionError(
            f"{graph.model.name} has {len(graph.edges):,} edges, and each needs a forward pass;"
            " give max_evaluations, with which gradients choose the edges to try, or use the level"
            " head"
        )
    if runs.left - 1 >= len(graph.edges):  # the result takes one pass
        return
    [estimates] = runs.gradients(
        lambda pair: (edges_along_inputs(pair, steps=SCREEN),),
        "choice of candidates",
        SCREEN,
        SCREEN * (1 + len(graph.readers)),
    )
    size = np.abs(estimates.mean(0))
    at = [(graph.reader_index[b], graph.index[a]) for a, b in graph.edges]
    order = ordered([size[place] for place in at])
    out = [graph.edges[i] for i in order[max(0, int(runs.left) - ENDS) :]]
    search.fate |= dict.fromkeys(out, SCREENED)
    search.mask = search.mask - graph.mask(out)
    search.lost = search.measure(search.mask)
    search.untried = float(search.lost.mean())


def _chosen(
    search: Removal, level: str, none: np.ndarray, unit: str, every: tuple[Edge, ...]
) -> NodeSet:
    """Return the kept set, with its faithfulness by the task."""
    runs, graph = search.runs, search.graph
    kept = [e for e in every if search.fate[e] == KEPT]
    edges = kept if level == "edge" else edges_between(graph, [name for name, _ in kept])
    some = connected(edges)
    if not some:
        largest = max((abs(float(x.mean())) for x in search.change.values()), default=0.0)
        raise OptionError(
            f"threshold={search.threshold:.4g} {unit} keeps no path from the embeddings to the"
            f" logits; the largest change by one removal is {largest:.4g} and that of all together"
            f" {abs(float(none.mean())):.4g}: give a smaller threshold"
        )
    ends = {name for a, b in some for name in (a, b.partition(".")[0])}
    share = runs.share(search.mask, "result")
    nodes = tuple(n for n in graph.writers if n in ends)
    return NodeSet(nodes, some, share, pairs=len(runs.held), separated=level == "edge")


def _removals(search: Removal, level: str) -> list[dict[str, Any]]:
    """List the decisions in order, with the mean change of each."""
    rows = []
    for (a, b), fate in search.fate.items():
        change = search.change.get((a, b))
        at: dict[str, Any] = {"from": a, "to": b} if level == "edge" else {"node": a}
        mean = math.nan if change is None else float(change.mean())
        rows.append(at | {"decision": fate, "change": mean})
    return rows


def _summary_of(fate: str) -> str:
    return {
        KEPT: "removed after others",
        UNUSED: "not tried: no reader left",
        SCREENED: "not tried: estimated by gradients",
    }.get(fate, "removed")


def _note(search: Removal, chosen: NodeSet, threshold: float, unit: str, level: str) -> str:
    fates = list(search.fate.values())
    what = "edges" if level == "edge" else "nodes"
    text = (
        f"{fates.count(KEPT)} of {len(fates)} {what} kept at threshold {threshold:.3g} {unit}"
        f" ({search.rule}, {search.metric}), {len(search.change)} tried,"
        f" {search.runs.forwards:.0f} forward passes; the set keeps {chosen.kept:.2f} of the task"
    )
    if SCREENED in fates:
        text += (
            f"; {fates.count(SCREENED)} of small estimate were removed first, not one by one:"
            f" together that loses {search.untried:.3g} {unit}"
        )
        if search.exceeds(search.untried):
            text += ", more than the threshold, so edges of the circuit are among them"
    return text
