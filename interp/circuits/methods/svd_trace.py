"""Tracing of attention back through singular vectors of queries and keys."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.declaration import Found, discovery
from interp.core.errors import OptionError, UnknownName
from interp.core.standard_errors import standard_error

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.circuits.query_key_signals import Signal
    from interp.model.model import Model

FEW = (
    "most effects of the seeds were not traced, because they attend to no single key; the trace"
    " covers the rest"
)
INDIRECT = (
    "no head, or none of those named, acts on the task directly: seeds are chosen by first-order"
    " effects through all later components, which the trace does not follow"
)


@discovery(levels=("head", "edge"))
def svd_trace(
    model: Model,
    task: ContrastTask,
    level: str,
    *,
    measure: str = "softmax",
    fires: float = 0.0,
    reach: float = 0.7,
    seeds: str = "",
    first: bool = False,
    check: int = 10,
    seed: int = 0,
) -> Found:
    """Trace the heads that make others attend, starting from those that act on the task directly.

    A head fires where an attention weight is `fires` or more. Its score is a sum over singular
    vectors of its query-key matrix, few of which carry it: the signal. The writers that these
    vectors read, on the query's and on the key's side, are traced in turn, prompt by prompt. Scores
    are credit: the seeds' effects on the task sum to 1, and a head that fires passes its credit on,
    half to either side, in proportion to what writers gave the signal.

    Limits: it follows queries and keys, so a head that only provides the value that another head
    moves, and MLPs in between, are found only as far as a signal reads them. A head that spreads
    its attention does not fire; if no seed fires, there is nothing to trace, and an error says so.
    The trace reads one run and changes nothing in it; the nodes it names are then patched, beside
    as many nodes that it does not name (tables `patched`, `patched_edges`).

    measure: quantity by which vectors are ranked: their part of the `score` (Franco and Crovella),
    of the score minus its mean over keys (`relative`), or of the weight after the `softmax`. fires:
    attention weight from which a head fires. 0 chooses it from the task's pairs: the largest weight
    that seeds with `reach` of the effects have on some key, at most 0.5, and at least twice that of
    uniform attention. A note reports the choice and the number of pairs on which seeds fire. reach:
    share of the seeds' effects, and of what writers give a signal, that is followed. seeds: heads
    to start from, such as `L9H6+L9H9`; by default those with the largest direct effects. If none
    acts directly, for example because MLPs read everything that heads write, effects through all
    later components choose and weight them, and a note says so. first: count firings on the first
    token, which many heads attend to by default. check: number of heads and MLPs (and edges) of
    most credit that are patched; 0 for none. seed: seed for the random slices of the control, and
    for the choice of the other patched nodes.

    Unit: credit; the seeds' direct effects are 1 together.

    Cost: Four forward passes and a gradient per pair, a singular value decomposition per firing,
    and a forward pass for each node that is patched to check the trace.

    Null: signals taken apart in random slices; heads in random order.

    Not for: heads that only pass on a value: it follows what makes a head attend. Where the heads
    that do the task attend to no key more than to others, it is refused.

    Reference: Franco and Crovella 2024, "Sparse Attention Decomposition Applied to Circuit Tracing"
    (arXiv 2410.00340), scores of writers exact rather than by the roots of singular values.
    """
    from interp.circuits.methods._checked import check_trace
    from interp.circuits.methods._tracing import trace_task

    if not 0 < reach <= 1:
        raise OptionError(f"reach={reach}; give a share above 0 and at most 1")
    if check < 0:
        raise OptionError(f"check={check}; give the number of nodes to patch, 0 or more")
    heads = [f"L{site.layer}H{h}" for site in model.sites for h in range(site.n_heads)]
    only = set(re.split(r"[\s,+]+", seeds)) - {""}
    for name in only - set(heads):
        raise UnknownName("head", name, heads)
    tracing = trace_task(
        model, task, measure=measure, fires=fires, reach=reach, only=only, first=first, seed=seed
    )
    nodes, traces, chosen = tracing.nodes, tracing.traces, tracing.threshold
    score = np.array([[t.nodes.get(name, 0.0) for t in traces] for name in nodes])
    edges = sorted({e for t in traces for e in t.edges}, key=_place(nodes))
    of_edges = np.array([[t.edges.get(e, 0.0) for t in traces] for e in edges])
    of_edges = of_edges.reshape(len(edges), len(task))
    patched, paths, stated, passes = [], [], (), 0.0
    if check:
        patched, paths, stated, passes = check_trace(
            model,
            task,
            nodes,
            score.mean(1),
            edges if level == "edge" else (),
            of_edges.mean(1) if level == "edge" else np.zeros(0),
            k=check,
            seed=seed,
        )
    return Found(
        nodes,
        score,
        "credit",
        tuple(edges) if level == "edge" else (),
        of_edges if level == "edge" else None,
        forwards=4.0 + tracing.indirect + passes,
        backwards=1.0 + tracing.indirect,
        signed=False,
        notes=(
            "credit is passed on from the seeds, whose effects sum to 1",
            "the trace follows queries and keys, but not values",
            f"heads fire from a weight of {chosen.weight:.3g} ({chosen.why}): on {tracing.fired} of"
            f" {len(task)} pairs, where {chosen.held:.0%} of the seeds' effects are",
            *([FEW] if chosen.held < 0.5 or 2 * tracing.fired < len(task) else []),
            *([INDIRECT] if tracing.indirect else []),
            *stated,
        ),
        tables={
            **_tables(tracing.followed, tracing.control),
            "patched": patched,
            "patched_edges": paths,
        },
        measured="traced through attention in one run, not patched",
    )


def _place(nodes: tuple[str, ...]) -> Any:
    """Return a sort key: readers in the model's order, then writers."""
    order = {name: i for i, name in enumerate(nodes)}

    def key(edge: tuple[str, str]) -> tuple:
        node, _, part = edge[1].partition(".")
        return order.get(node, len(nodes)), part, order[edge[0]]

    return key


def _tables(found: list[Signal], control: list[tuple[int, int, int]]) -> dict[str, list[dict]]:
    by_head: dict[str, list[Signal]] = defaultdict(list)
    for s in found:
        by_head[s.name].append(s)
    upstream = []
    for name, mine in by_head.items():
        for side in ("q", "k"):
            shares = [s.shares(side) for s in mine]
            mean = {w: np.array([x[w] for x in shares]) for w in shares[0]}
            for writer in sorted(mean, key=lambda w: -float(mean[w].mean()))[:3]:
                x = mean[writer]
                upstream.append(
                    {
                        "head": name,
                        "side": {"q": "query", "k": "key"}[side],
                        "from": writer,
                        "share": float(x.mean()),
                        "sem": float(standard_error(x)),
                        "firings": len(x),
                    }
                )
    return {
        "upstream": upstream,
        "signals": [
            {
                "head": name,
                "firings": len(mine),
                "of": len(mine[0].parts),
                "slices": float(np.median([s.chosen for s in mine])),
                "weight": float(np.mean([s.weight for s in mine])),
            }
            for name, mine in by_head.items()
        ],
        "controls": [
            {
                "what": f"median number of slices in a signal, of {control[0][2]}",
                "signals": len(control),
                "singular": float(np.median([a for a, _, _ in control])),
                "random": float(np.median([b for _, b, _ in control])),
            }
        ]
        if control
        else [],
    }
