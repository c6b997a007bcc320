"""Trace attention back through singular vectors of queries and keys."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuit.declare import Found, discovery
from interp.errors import OptionError, UnknownName

if TYPE_CHECKING:
    from interp.circuit.contrast import ContrastTask
    from interp.circuit.query_key_signals import Signal
    from interp.model.model import Model

CONTROLS = 200  # signals that are taken apart again in random slices


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
    seeds' direct effects are 1 together, and a head that fires passes its credit on, half to either
    side, in parts of what writers gave the signal.

    What it cannot do: it follows queries and keys, so a head that only provides the value that
    another moves, and MLPs between, are seen as far as they were read by a signal. A head that
    spreads its attention does not fire. It reads one run, and changes nothing in it: verify.

    measure: what the vectors are ranked by, their part of the `score` (Franco and Crovella), of how
    far it lies above the mean over keys (`relative`), or of the weight after the `softmax`.
    fires: weight from which a head fires.
    reach: part of the seeds' direct effects, and of what writers give a signal, that is followed.
    seeds: heads to start from, such as `L9H6,L9H9`; those with the largest direct effects, unless
    given.
    first: count firings on the first token, where many heads rest.
    seed: of the random slices of the control.

    Reference: Franco and Crovella 2024, "Sparse Attention Decomposition Applied to Circuit Tracing"
    (arXiv 2410.00340), scores of writers exact rather than by the roots of singular values.
    """
    from interp.circuit.linear_scores import LinearScores
    from interp.circuit.query_key_signals import Tracer
    from interp.discovery._gathered import helping
    from interp.discovery._traced import seeds as find_seeds
    from interp.discovery._traced import trace

    if not 0 < reach <= 1:
        raise OptionError(f"reach={reach}; a part above 0, at most 1")
    heads = [f"L{site.layer}H{h}" for site in model.sites for h in range(site.n_heads)]
    only = {name.strip() for name in seeds.split(",") if name.strip()}
    for name in only - set(heads):
        raise UnknownName("head", name, heads)
    nodes: tuple[str, ...] = ()
    traces: list[Any] = [None] * len(task)
    followed: dict[tuple, Signal] = {}
    control: list[tuple[int, int, int]] = []
    forwards = 0.0
    for batch in task.batches():
        scores = LinearScores(model, batch.clean)
        tracer = Tracer(scores, fires, measure, first)  # type: ignore[arg-type]
        nodes, known = scores.writers, {}
        starts = find_seeds(model, batch, helping(task, batch), scores, reach, only)
        for row, start in enumerate(starts):
            found = trace(tracer, row, start, reach=reach, known=known)
            traces[batch.which[row]] = found
            for s in found.signals:
                followed[batch.which[row], s.name, s.query, s.key] = s
        control += _control(tracer, model, followed, batch.which, seed)
        forwards += 3 * len(batch.which) / len(task)
    score = np.array([[t.nodes.get(name, 0.0) for t in traces] for name in nodes])
    edges = sorted({e for t in traces for e in t.edges}, key=_place(nodes))
    of_edges = np.array([[t.edges.get(e, 0.0) for t in traces] for e in edges])
    return Found(
        nodes,
        score,
        "credit",
        tuple(edges) if level == "edge" else (),
        of_edges.reshape(len(edges), len(task)) if level == "edge" else None,
        forwards=forwards,
        backwards=1.0,
        signed=False,
        notes=(
            "credit is what is passed on from the seeds, whose direct effects are 1 together",
            "queries and keys are followed, values are not",
        ),
        tables=_tables(list(followed.values()), control),
    )


def _control(
    tracer: Any, model: Model, followed: dict[tuple, Signal], which: tuple[int, ...], seed: int
) -> list[tuple[int, int, int]]:
    """By signal: its slices, the same in random orthonormal slices, and how many there are."""
    from interp.circuit.query_key_signals import Tracer

    other = Tracer(tracer.scores, tracer.fires, tracer.measure, tracer.first, basis=seed)
    row_of = {prompt: row for row, prompt in enumerate(which)}
    sites = {site.layer: site for site in model.sites}
    mine = [(key[0], s) for key, s in followed.items() if key[0] in row_of]
    rng = np.random.default_rng(seed)
    found = []
    for i in rng.permutation(len(mine))[:CONTROLS].tolist():
        prompt, s = mine[i]
        again = other.signal(sites[s.layer], row_of[prompt], s.head, s.query, s.key)
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
