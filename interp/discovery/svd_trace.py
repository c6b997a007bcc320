"""Trace attention back through singular vectors of queries and keys."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuit.declare import Found, discovery
from interp.circuit.steps import advance, counted, step
from interp.errors import OptionError, UnknownName

if TYPE_CHECKING:
    from interp.circuit.contrast import Batch, ContrastTask
    from interp.circuit.query_key_signals import Signal, Tracer
    from interp.model.model import Model

CONTROLS = 200  # signals that are taken apart again in random slices
INDIRECT = (
    "no head, or none of those named, acts on the task directly: seeds are chosen by first-order"
    " effects through all that follows, which the trace does not see"
)


@discovery(levels=("head", "edge"))
def svd_trace(
    model: Model,
    task: ContrastTask,
    level: str,
    *,
    measure: str = "softmax",
    fires: float = 0.5,
    reach: float = 0.7,
    seeds: str = "",
    first: bool = False,
    seed: int = 0,
) -> Found:
    """Heads that make others attend, traced from those that act on the task directly.

    A head fires where one weight is `fires` or more. Its score is a sum over singular vectors of
    its query-key matrix, few of which carry it: the signal. Who wrote what these vectors read, on
    the query's and on the key's side, is followed in turn, prompt by prompt. Scores are credit: the
    seeds' effects on the task are 1 together, and a head that fires passes its credit on, half to
    either side, in parts of what writers gave the signal.

    What it cannot do: it follows queries and keys, so a head that only provides the value that
    another moves, and MLPs between, are seen as far as they were read by a signal. A head that
    spreads its attention does not fire. It reads one run, and changes nothing in it: verify.

    measure: what the vectors are ranked by, their part of the `score` (Franco and Crovella), of how
    far it lies above the mean over keys (`relative`), or of the weight after the `softmax`.
    fires: weight from which a head fires.
    reach: part of the seeds' effects, and of what writers give a signal, that is followed.
    seeds: heads to start from, such as `L9H6+L9H9`; unless given those with the largest direct
    effects. Where none acts directly, as where MLPs read all that heads write, effects through all
    that follows choose and weigh them, and a note says so.
    first: count firings on the first token, where many heads rest.
    seed: of the random slices of the control.

    Reference: Franco and Crovella 2024, "Sparse Attention Decomposition Applied to Circuit Tracing"
    (arXiv 2410.00340), scores of writers exact rather than by the roots of singular values.
    """
    from interp.circuit.linear_scores import LinearScores
    from interp.circuit.query_key_signals import Tracer
    from interp.discovery._gathered import helping
    from interp.discovery._seeds import seeds as find_seeds
    from interp.discovery._traced import Trace, trace

    if not 0 < reach <= 1:
        raise OptionError(f"reach={reach}; a part above 0, at most 1")
    heads = [f"L{site.layer}H{h}" for site in model.sites for h in range(site.n_heads)]
    only = set(re.split(r"[\s,+]+", seeds)) - {""}
    for name in only - set(heads):
        raise UnknownName("head", name, heads)
    nodes: tuple[str, ...] = ()
    traces: list[Any] = [None] * len(task)
    followed: list[Signal] = []
    control: list[tuple[int, int, int]] = []

    def traced(batch: Batch) -> tuple[tuple[str, ...], list[tuple], bool, list[tuple]]:
        """Names of writers, every prompt's trace, whether seeds act directly, and controls."""
        scores = LinearScores(model, batch.clean)
        tracer = Tracer(scores, fires, measure, first)  # type: ignore[arg-type]
        starts, direct = find_seeds(model, batch, helping(task, batch), scores, reach, only)
        known: dict[Any, Any] = {}

        def one(row: int) -> tuple:
            found = trace(tracer, row, starts[row], reach=reach, known=known, direct=direct)
            advance()
            return found.plain()

        kept = [step("prompt", partial(one, row)) for row in range(len(starts))]
        mine = [s for told in kept for s in Trace.of(told, scores.writers).signals]
        return scores.writers, kept, direct, _control(tracer, model, mine, seed)

    batches, indirect = list(task.batches()), 0.0
    with counted("tracing prompts", len(task)) as done:
        for batch in batches:
            nodes, kept, direct, more = step("batch", partial(traced, batch))
            for row, told in zip(batch.which, kept, strict=True):
                traces[row] = Trace.of(told, nodes)
            followed += [s for row in batch.which for s in _once(traces[row].signals)]
            control += more
            indirect += 0.0 if direct else len(batch.which) / len(task)
            done(sum(t is not None for t in traces))
    score = np.array([[t.nodes.get(name, 0.0) for t in traces] for name in nodes])
    edges = sorted({e for t in traces for e in t.edges}, key=_place(nodes))
    of_edges = np.array([[t.edges.get(e, 0.0) for t in traces] for e in edges])
    return Found(
        nodes,
        score,
        "credit",
        tuple(edges) if level == "edge" else (),
        of_edges.reshape(len(edges), len(task)) if level == "edge" else None,
        forwards=3.0 + indirect,
        backwards=1.0 + indirect,
        signed=False,
        notes=(
            "credit is what is passed on from the seeds, whose effects are 1 together",
            "queries and keys are followed, values are not",
            *([INDIRECT] if indirect else []),
        ),
        tables=_tables(followed, control),
    )


def _once(signals: Iterable[Signal]) -> list[Signal]:
    """Every signal once, though several readers may have led to it."""
    return list({(s.row, s.name, s.query, s.key): s for s in signals}.values())


def _control(
    tracer: Tracer, model: Model, followed: list[Signal], seed: int
) -> list[tuple[int, int, int]]:
    """By signal: its slices, the same in random orthonormal slices, and how many there are."""
    from interp.circuit.query_key_signals import Tracer

    other = Tracer(tracer.scores, tracer.fires, tracer.measure, tracer.first, basis=seed)
    sites = {site.layer: site for site in model.sites}
    mine, found = _once(followed), []
    for i in np.random.default_rng(seed).permutation(len(mine))[:CONTROLS].tolist():
        s = mine[i]
        again = other.signal(sites[s.layer], s.row, s.head, s.query, s.key)
        if again is not None:
            found.append((s.chosen, again.chosen, len(s.parts)))
    return found


def _place(nodes: tuple[str, ...]) -> Any:
    """Readers in the model's order, then writers."""
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
                sem = float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")
                upstream.append(
                    {
                        "head": name, "side": {"q": "query", "k": "key"}[side], "from": writer,
                        "share": float(x.mean()), "sem": sem, "firings": len(x),
                    }
                )  # fmt: skip
    return {
        "upstream": upstream,
        "signals": [
            {
                "head": name, "firings": len(mine), "of": len(mine[0].parts),
                "slices": float(np.median([s.chosen for s in mine])),
                "weight": float(np.mean([s.weight for s in mine])),
            }
            for name, mine in by_head.items()
        ],
        "controls": [
            {
                "what": f"median slices of a signal, of {control[0][2]}: singular, random",
                "signals": len(control),
                "singular": float(np.median([a for a, _, _ in control])),
                "random": float(np.median([b for _, b, _ in control])),
            }
        ] if control else [],
    }  # fmt: skip
