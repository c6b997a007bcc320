"""The default search: nodes and edges measured by patching, within a budget of passes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.declaration import Found, discovery
from interp.circuits.groups import GroupSearch
from interp.circuits.matters import LEAST as MATTERS
from interp.circuits.matters import what_matters
from interp.circuits.methods._attribution import edges_along_inputs
from interp.circuits.methods._measured_nodes import ALONE, MeasuredNodes
from interp.circuits.nodes import Edge, NodeSet, node_of
from interp.circuits.patched_runs import BASE, PatchedRuns
from interp.circuits.smallest import (
    IDLE,
    check_share,
    choose_edges,
    choose_nodes,
    edges_between,
    first_edges,
)
from interp.core.errors import OptionError
from interp.core.ties import either, ordered_by, reaches, tied_with

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model

STEPS = 3  # of the gradients that estimate nodes
EDGE_STEPS = 1
SEARCHES = 2  # times the passes of the search: if all edges take no more, all are patched
FEW = 16  # pairs that choose, below which a set may lack what matters on some prompts
HOPELESS = 10  # times the passes that are left: so many edges are not separated
LEAST = BASE + 3  # passes: both runs, their check, one gradient, one node and the set
LEAST_DEFAULT = 600  # passes by default, on a small model
SEARCH = 30  # passes by default for gradients, backups and the set, beside nodes and edges


@discovery(levels=("edge", "head"))
def verified_edges(
    model: Model,
    task: ContrastTask,
    level: str,
    *,
    faithful: float = 0.8,
    size: int = 0,
    max_evaluations: int = 0,
    backups: bool = True,
) -> Found:
    """Find the nodes and edges that keep a share of the task, each measured by patching.

    Every node is patched alone; if max_evaluations is smaller, those whose effect may be largest,
    by integrated gradients, their errors over pairs, and the errors that gradients had on the nodes
    before. Heads that matter only while another head is patched are searched by a gradient taken in
    that run, and measured (table `backups`, column `conditional`). As few patched nodes, MLPs and
    embeddings included, as keep the share while all others are corrupted are found from the first
    of the ranking by removal, one by one and in pairs, and exchange. Larger groups of heads of
    which one is enough are found by a halving search among the heads outside the set (table
    `groups`). The edges between the nodes of the set are then patched alone (where heads stand in
    for one at an end of the edge, with those patched too), and as few of them are found in the same
    way as the nodes (tables `smallest`, `smallest_nodes`, `smallest_edges`). The table `matters`
    has the nodes and edges whose removal changes the task, by Holm's correction over all that were
    tried. If passes are left, the edges of heads that stand in for one of the set, and of nodes
    whose effect is 2 % of the gap or more, are patched too, or all edges of the model; either if
    they take at most twice the passes of the search. If there are more edges than passes, gradients
    choose which are patched; if those that keep the share are still too many, all edges between the
    nodes stay in the set, and a note says so. A node that was not patched has no score: its
    estimate stands in a column of its own, and decides neither the order nor the set.

    faithful: share of the difference between clean and corrupted prompts that the set keeps; its
    faithfulness is then at most 1 - faithful away from 1, to either side. size:
    number of nodes of the set, instead of the share. max_evaluations: forward passes over all
    pairs; 0: five per node, at least 600, and as many again if that is enough to patch every edge
    between the nodes of the set and to remove edges. backups: search for them.

    Cost: At most max_evaluations passes, and about ten gradients; table `forwards` has them.

    Not for: a proof that no smaller set exists: no node or edge of the set can leave it, nor any
    two of those that were tried, but quite another set may be smaller. Judge the set on other pairs
    (`evaluate_set`).

    Reference: path patching as in Goldowsky-Dill et al. 2023 (arXiv 2304.05969); integrated
    gradients as in Hanna et al. 2024 (arXiv 2403.17806); backups as in CoAx (arXiv 2607.01940).
    """
    check_share(faithful, size)
    if max_evaluations < 0 or 0 < max_evaluations < LEAST:
        raise OptionError(
            f"max_evaluations={max_evaluations}; the clean and corrupted runs, a gradient, a node"
            f" and the set take {LEAST} passes; give more, or 0 for enough to patch every node and"
            " as many edges"
        )
    runs = PatchedRuns(model, task, parts=task.parts())
    runs.budget = max_evaluations or default_budget(len(runs.graph.writers))
    nodes = MeasuredNodes(runs)
    rows = _measure(nodes, size, backups)
    half = runs.left / 2 if level == "edge" else runs.left
    chosen = choose_nodes(runs, nodes.ranking, faithful=faithful, size=size, most=half)
    grouped = rows is not None and not size
    groups = GroupSearch(runs, nodes.alone).groups(chosen) if grouped else []
    nodes.join(groups)
    edges: dict[Edge, np.ndarray] = {}
    stand_ins: dict[Edge, str] = {}
    between, patched = chosen.edges, 0
    if level == "edge":
        if not max_evaluations and runs.left < 3 * len(between) <= runs.left + runs.budget:
            runs.budget *= 2
        every = runs.graph.edges
        stand_ins = _stand_ins(nodes, every)
        both = _with_others(nodes, chosen)
        chosen, edges = _edges(nodes, chosen, stand_ins)
        patched = len(edges)
        fits = len(every) <= min(SEARCHES * runs.forwards, runs.left + patched)
        more = set(every if fits else both) - set(edges if fits else between)
        if edges and len(more) <= min(runs.left, SEARCHES * runs.forwards):
            edges |= _patched(nodes, [*more], stand_ins)
    none = tuple(name for name in nodes.names if name not in nodes.alone)
    of_edges: dict[str, Any] = {}
    if edges:
        parts = tuple(
            f"patched with {stand_ins[edge]} out" if edge in stand_ins else ALONE for edge in edges
        )
        of_edges = {
            "edges": tuple(edges),
            "edges_measured": parts,
            "edges_per_prompt": np.stack(list(edges.values())),
        }
    tables = chosen.tables(runs.stages) | {"matters": what_matters(nodes, groups, edges)}
    if rows is not None:
        told = [row for i, x in enumerate(groups, 1) for row in x.rows(i, task.task.unit)]
        tables |= {"backups": rows, "groups": told}
    return Found(
        runs.graph.writers,
        nodes.scores,
        task.task.unit,
        forwards=runs.forwards,
        backwards=runs.backwards,
        tables=tables,
        notes=_notes(runs, nodes, chosen, level, (patched, len(between), len(edges)), size),
        measured=tuple(map(nodes.summary, nodes.names)),
        unmeasured=none,
        estimate=nodes.estimates,
        conditional=nodes.conditional if rows or groups else None,
        conditional_on=tuple(nodes.on) if rows or groups else (),
        **of_edges,
    )


def default_budget(n_nodes: int) -> int:
    """Return the forward passes that a search takes by default."""
    return max(LEAST_DEFAULT, 5 * n_nodes)


def _measure(nodes: MeasuredNodes, size: int, backups: bool) -> list[dict[str, Any]] | None:
    """Patch the nodes, all of them if possible, and search for backups; None without a search."""
    runs, n = nodes.runs, len(nodes.names)
    if runs.left >= n:
        nodes.patch(nodes.names)
        if not backups or runs.left < STEPS + 4:
            return None
        nodes.estimate(STEPS)
        return nodes.backups()
    nodes.estimate(1 if runs.left < 4 * STEPS else STEPS)
    of_set = 1 if size else max(1, min(math.ceil(math.log2(n)) + 2, int(runs.left) // 3))
    nodes.patch_most_uncertain(int(runs.left) - of_set)
    return None


def _with_others(nodes: MeasuredNodes, chosen: NodeSet) -> tuple[Edge, ...]:
    """Return the edges between the nodes of the set, their stand-ins, and others of some effect."""
    on = zip(nodes.names, nodes.on, strict=True)
    inside, least = set(chosen.nodes), MATTERS * abs(nodes.runs.gap)
    more = {name for name, other in on if inside & {*other.split()}}
    more |= {x for x, lost in nodes.alone.items() if reaches(abs(lost.mean()), least)}
    return edges_between(nodes.runs.graph, [*chosen.nodes, *(more - inside)])


def _stand_ins(nodes: MeasuredNodes, every: tuple[Edge, ...]) -> dict[Edge, str]:
    """Return the heads that hide an edge's effect, where some stand in for a head at its ends.

    Such an edge is patched while those heads are patched too: alone it seems to do nothing. An edge
    between a head and its stand-in is patched alone.
    """
    on = dict(zip(nodes.names, nodes.on, strict=True)) | {"logits": ""}
    hiding = {}
    for edge in every:
        ends = edge[0], node_of(edge[1])
        head = on[ends[0]] or on[ends[1]]
        if head and not {*head.split()} & {*ends}:
            hiding[edge] = head
    return hiding


def _edges(
    nodes: MeasuredNodes, chosen: NodeSet, stand_ins: Mapping[Edge, str]
) -> tuple[NodeSet, dict[Edge, np.ndarray]]:
    """Patch the edges between the chosen nodes, and choose those that keep the share."""
    runs, every = nodes.runs, chosen.edges
    search = math.ceil(math.log2(max(2, len(every)))) + 1  # passes of one bisection
    some: Sequence[Edge] = every
    if len(every) > runs.left - search:
        if runs.left < EDGE_STEPS + 2 * search or len(every) > HOPELESS * runs.left:
            return chosen, {}
        bound = _bounds(nodes, every)
        some = first_edges(runs, chosen, bound, search)
        if len(some) > runs.left - search:
            few = ordered_by(every, bound.__getitem__)[: min(int(runs.left), len(chosen.nodes))]
            return chosen, _patched(nodes, few, stand_ins)
    effects = _patched(nodes, some, stand_ins)
    score = {edge: float(x[runs.first].mean()) for edge, x in effects.items()}
    return choose_edges(runs, chosen, score, most=runs.left), effects


def _patched(
    nodes: MeasuredNodes, some: Sequence[Edge], stand_ins: Mapping[Edge, str]
) -> dict[Edge, np.ndarray]:
    """Patch some edges, and return the effect of each on each pair, in the order of the graph."""
    runs, graph = nodes.runs, nodes.runs.graph
    places = {edge: i for i, edge in enumerate(graph.edges)}
    some = sorted(some, key=places.__getitem__)
    whole = [
        runs.node_mask(*stand_ins[edge].split()) if edge in stand_ins else graph.full()
        for edge in some
    ]
    masks = [mask - graph.mask([edge]) for mask, edge in zip(whole, some, strict=True)]
    lost = runs.effects(masks, "patching edges")
    return {
        edge: x - nodes.without(stand_ins[edge]) if edge in stand_ins else x
        for edge, x in zip(some, lost, strict=True)
    }


def _bounds(nodes: MeasuredNodes, every: tuple[Edge, ...]) -> dict[Edge, float]:
    """Return the largest effect that each edge may have: its estimate and its writer's error."""
    runs, graph = nodes.runs, nodes.runs.graph
    read = [graph.reader_index[name] for name in dict.fromkeys(b for _, b in every)]
    row = {reader: i for i, reader in enumerate(read)}
    [estimates] = runs.gradients(
        lambda pair: (edges_along_inputs(pair, steps=EDGE_STEPS, readers=read)[:, read],),
        "gradients of edges",
        EDGE_STEPS,
        EDGE_STEPS * (1 + len(read)),
    )
    size, error = np.abs(estimates[runs.first].mean(0)), nodes.errors()
    return {
        (a, b): float(size[row[graph.reader_index[b]], graph.index[a]]) + error[a] for a, b in every
    }


def _notes(
    runs: PatchedRuns,
    nodes: MeasuredNodes,
    chosen: NodeSet,
    level: str,
    edges: tuple[int, int, int],
    size: int,
) -> tuple[str, ...]:
    (patched, candidates, total), n = edges, len(nodes.names)
    text = (
        f"{runs.forwards:.0f} of {runs.budget:.0f} forward passes over all pairs, and"
        f" {runs.backwards:.0f} gradients; {len(nodes.alone)} of {n} nodes"
    )
    if level == "edge":
        text += f" and {patched} of {candidates} edges between the set's nodes"
        beside = total - patched
        text += f", and {beside} {'other' if beside == 1 else 'others'}," if beside else ""
    text += " patched one by one"
    more = len(nodes.alone) < n or (level == "edge" and patched < candidates)
    notes = [text + ("; a larger max_evaluations= patches more" if more else "")]
    if not size and not chosen.reached:
        notes.append(
            f"the {len(nodes.alone)} patched nodes together do not keep {chosen.asked:g}: what is"
            " missing is in nodes that were not patched"
        )
    elif not size and not chosen.minimal:
        notes.append(
            "the search ended at the limit of passes: nodes or edges may still leave the set; a"
            " larger max_evaluations= tries more"
        )
    if level == "edge" and chosen.separated and patched < candidates:
        notes.append(
            f"the {candidates - patched} edges of smallest estimate were left out together, not one"
            " by one; the share was measured without them"
        )
    if level == "edge" and not chosen.separated:
        notes.append(
            f"the edges of the set were not chosen one by one: all {candidates} edges between its"
            " nodes belong to it; max_evaluations="
            f"{runs.forwards + candidates - patched + SEARCH:.0f} patches them all"
        )
    few = len(np.union1d(runs.first, runs.second))
    if not size and few < FEW:
        notes.append(
            f"{few} pairs chose the set: too few to see what matters on some prompts only, so that"
            f" it may keep less on others; give {2 * FEW} pairs or more"
        )
    return (*notes, *_ties(nodes, chosen), *runs.graph.norm_notes())


def _ties(nodes: MeasuredNodes, chosen: NodeSet) -> list[str]:
    """Return a note for each node of the set whose effect is that of one outside, but for rounding.

    Which of them is in the set is then decided by name alone.
    """
    sizes, gap = nodes.sizes, abs(nodes.runs.gap)
    names, notes = list(sizes), []
    for name in chosen.nodes:
        tied = [names[i] for i in tied_with([*sizes.values()], names.index(name), scale=gap)]
        out = [other for other in tied if other not in chosen.nodes]
        if out and sizes[name] >= IDLE * gap:
            notes.append(
                f"a tie: {either([name, *out])}, whose effects are equal up to rounding; the set"
                " has the first by name"
            )
    return notes
