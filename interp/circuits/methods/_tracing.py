"""Traces of a task's pairs from their seeds, with the threshold that the pairs give."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.linear_scores import LinearScores
from interp.circuits.methods._gathered import helping
from interp.circuits.methods._seeds import seeds
from interp.circuits.methods._threshold import (
    Attends,
    Threshold,
    attention_of,
    choose_threshold,
    nothing_traced,
)
from interp.circuits.methods._traced import CreditTrace, trace
from interp.circuits.query_key_signals import Signal, Tracer
from interp.circuits.steps import advance, counted, step

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.circuits.contrast_batch import ContrastBatch
    from interp.model.model import Model

CONTROLS = 200  # most signals that are decomposed again in random slices


@dataclass(frozen=True, eq=False)
class Tracing:
    """Traces of all pairs.

    Args:
        nodes: Names of writers.
        traces: One for each pair.
        followed: Signals, each once per pair.
        control: By signal, its number of slices, that in random slices, and the number of all.
        threshold: The attention weight from which heads fire.
        fired: Number of pairs on which a seed fired.
        indirect: Share of the pairs whose seeds act only through later components.
    """

    nodes: tuple[str, ...]
    traces: list[CreditTrace]
    followed: list[Signal]
    control: list[tuple[int, int, int]]
    threshold: Threshold
    fired: int
    indirect: float


def trace_task(
    model: Model,
    task: ContrastTask,
    *,
    measure: str,
    fires: float,
    reach: float,
    only: set[str],
    first: bool,
    seed: int,
) -> Tracing:
    """Trace all pairs of a task; the options are those of `svd_trace`."""
    nodes: tuple[str, ...] = ()
    traces: list[Any] = [None] * len(task)
    followed: list[Signal] = []
    control: list[tuple[int, int, int]] = []
    batches = list(task.batches())

    def started(batch: ContrastBatch) -> tuple[list[dict], bool, list[list[Attends]]]:
        """Return every prompt's seeds, whether they act directly, and how much they attend."""
        scores = LinearScores(model, batch.clean)
        shares, direct = seeds(model, batch, helping(task, batch), scores, reach, only)
        return shares, direct, attention_of(scores, shares, first=first)

    with counted("seeds", len(batches)) as done:
        starts = []
        for i, batch in enumerate(batches):
            starts.append(step("seeds", partial(started, batch)))
            done(i + 1)
    chosen = choose_threshold([mine for _, _, attends in starts for mine in attends], reach, fires)

    def traced(batch: ContrastBatch, found: list[dict], direct: bool) -> tuple[tuple, list, list]:
        """Return the names of writers, every prompt's trace, and the controls."""
        scores = LinearScores(model, batch.clean)
        tracer = Tracer(scores, chosen.weight, measure, first)  # type: ignore[arg-type]
        known: dict[Any, Any] = {}

        def one(row: int) -> tuple:
            mine = trace(tracer, row, found[row], reach=reach, known=known, direct=direct)
            advance()
            return mine.plain()

        kept = [step("prompt", partial(one, row)) for row in range(len(found))]
        mine = [s for stated in kept for s in CreditTrace.of(stated, scores.writers).signals]
        return scores.writers, kept, _control(tracer, model, mine, seed)

    indirect, fired = 0.0, 0
    with counted("tracing prompts", len(task)) as done:
        for batch, (shares, direct, _) in zip(batches, starts, strict=True):
            nodes, kept, more = step("batch", partial(traced, batch, shares, direct))
            for row, stated in zip(batch.which, kept, strict=True):
                traces[row] = CreditTrace.of(stated, nodes)
            followed += [s for row in batch.which for s in _once(traces[row].signals)]
            fired += sum(bool(traces[row].signals) for row in batch.which)
            control += more
            indirect += 0.0 if direct else len(batch.which) / len(task)
            done(sum(t is not None for t in traces))
    named = sorted({name for shares, _, _ in starts for places in shares for name, _ in places})
    if not followed:
        raise nothing_traced(model.name, named, chosen, len(task))
    return Tracing(nodes, traces, followed, control, chosen, fired, indirect)


def _once(signals: Iterable[Signal]) -> list[Signal]:
    """Return every signal once, although several readers may have led to it."""
    return list({(s.row, s.name, s.query, s.key): s for s in signals}.values())


def _control(
    tracer: Tracer, model: Model, followed: list[Signal], seed: int
) -> list[tuple[int, int, int]]:
    """Return, by signal, its number of slices, that in random orthonormal slices, and of all."""
    other = Tracer(tracer.scores, tracer.fires, tracer.measure, tracer.first, basis=seed)
    sites = {site.layer: site for site in model.sites}
    mine, sizes = _once(followed), []
    for i in np.random.default_rng(seed).permutation(len(mine))[:CONTROLS].tolist():
        s = mine[i]
        again = other.signal(sites[s.layer], s.row, s.head, s.query, s.key)
        if again is not None:
            sizes.append((s.chosen, again.chosen, len(s.parts)))
    return sizes
