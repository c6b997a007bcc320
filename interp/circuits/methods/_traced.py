"""Conversion of signals to a graph, from the heads that act on the task back to what they read."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interp.circuits.linear_scores import CONSTANT
from interp.circuits.methods._seeds import Place
from interp.circuits.query_key_signals import Signal, Tracer

if TYPE_CHECKING:
    from interp.model.calls.sites import Site


@dataclass(eq=False)
class CreditTrace:
    """Trace of one prompt: credit of nodes and edges; on each side it sums to that of the seeds.

    Args:
        nodes: Credit by name.
        edges: Credit by (writer, reader).
        signals: The signals that were followed.
    """

    nodes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    edges: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    signals: list[Signal] = field(default_factory=list)

    def plain(self) -> tuple:
        """Return all data as plain types; the names of writers are stored elsewhere."""
        kept = [{k: v for k, v in vars(s).items() if k != "writers"} for s in self.signals]
        return dict(self.nodes), dict(self.edges), kept

    @classmethod
    def of(cls, stated: tuple, writers: tuple[str, ...]) -> CreditTrace:
        """Make a trace from the output of `plain`."""
        nodes, edges, kept = stated
        signals = [Signal(**s, writers=writers[: len(s["by_query"]) - 1]) for s in kept]
        return cls(nodes, edges, signals)


def trace(
    tracer: Tracer,
    row: int,
    start: dict[Place, float],
    *,
    reach: float,
    known: dict[Any, Any],
    direct: bool = True,
) -> CreditTrace:
    """Follow the credit of the seeds of one prompt from head to head, down to the embeddings.

    A head that fires passes its credit on to the writers that its signal reads, half of it to the
    query's side and half to the key's; where it fires on several keys, in proportion to their
    weights. On each side the smallest set of writers is kept that holds `reach` of the signal, each
    with its share.
    """
    credit_trace, model = CreditTrace(), tracer.scores.model
    credit: dict[Place, float] = defaultdict(float, start)
    for (name, _), x in start.items() if direct else ():
        credit_trace.edges[name, "logits"] += x
    for site in reversed(model.sites):
        fired = known.setdefault(site, _by_place(tracer, site))
        for head in range(site.n_heads):
            name = f"L{site.layer}H{head}"
            places = [p for n, p in credit if n == name]
            for query in sorted(places):
                mine = credit[name, query]
                credit_trace.nodes[name] += mine
                signals = _signals(tracer, site, row, head, query, fired, known)
                whole = sum(signal.weight for signal in signals)
                for signal in signals:
                    credit_trace.signals.append(signal)
                    _pass_on(credit_trace, credit, signal, mine * signal.weight / whole, reach)
    return credit_trace


def _by_place(tracer: Tracer, site: Site) -> dict[tuple[int, int, int], list[int]]:
    fired = defaultdict(list)
    for row, head, query, key in tracer.firings(site).tolist():
        fired[row, head, query].append(key)
    return fired


def _signals(
    tracer: Tracer, site: Site, row: int, head: int, query: int, fired: Any, known: dict[Any, Any]
) -> list[Signal]:
    place = site, row, head, query
    if place not in known:
        fired_signals = [
            tracer.signal(site, row, head, query, key) for key in fired[row, head, query]
        ]
        known[place] = [s for s in fired_signals if s is not None]
    return known[place]


def _pass_on(
    found: CreditTrace, credit: dict[Place, float], signal: Signal, mine: float, reach: float
) -> None:
    for side, parts, pos in (
        ("q", signal.by_query, signal.query),
        ("k", signal.by_key, signal.key),
    ):
        names = (*signal.writers, CONSTANT)
        helping = sorted(
            ((x, i) for i, x in enumerate(parts) if x > 0), key=lambda x: (-x[0], x[1])
        )
        whole, so_far = sum(x for x, _ in helping), 0.0
        for x, i in helping:
            if so_far >= reach * whole:
                break
            so_far += x
            if names[i] == CONSTANT:
                continue  # biases belong to no writer
            part = 0.5 * mine * float(x / whole)
            found.edges[names[i], f"{signal.name}.{side}"] += part
            if names[i][0] == "L":
                credit[names[i], pos] += part
            else:
                found.nodes[names[i]] += part
