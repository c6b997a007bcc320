"""Attention flow: how much could run from an output to a token if attention were pipes."""

from __future__ import annotations

from typing import Any

import numpy as np

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.attribution.graph.flow import flow_notes, solve_pairs
from interp.attribution.graph.layered import rows_to_one
from interp.attribution.graph.mixing import mixing
from interp.core.errors import OptionError

REDUCTIONS = ("row", "max", "sum")


@attribution(unit="share of the flow", signed=False, needs="patterns")
def attention_flow(
    example: Example,
    *,
    residual: float = 0.5,
    heads: Any = "mean",
    start_layer: int = 0,
    last_layer: int = -1,
    normalise: str = "sum",
    reduce: str = "row",
    backend: str = "numba",
    limit: float = 600.0,
    full: bool = False,
    stack: str = "",
) -> Scores:
    """Maximum flow from the output that the target reads to each token, with attention as capacity.

    Each pair of output and token is a maximum flow of its own, exact. A flow never exceeds what
    the first layer gives to the token in all (its column sum) nor what leaves the output; in deep
    models most pairs reach that bound, so that scores tell little beyond the first layer. The notes
    give the share that does, with a warning from one half on.

    Cost: One maximum flow per token for one output; n times as many for all outputs.

    Not for: deep models: most flows reach the bound that the first layer sets, and carry little
    else (the notes say how many). Long inputs take minutes.

    Args:
        residual: share of the residual stream in the capacities, 0 to 1.
        heads: as for rollout.
        start_layer: the lowest layer that takes part; sources are the states that enter it.
        last_layer: the highest that takes part.
        normalise: sum scales each output's flows to 1, as the authors do; none leaves them raw;
            rows scales every layer's rows instead, once the residual is in.
        reduce: row takes the outputs that the target reads, weighted as it reads them; max and sum
            go over all outputs.
        backend: numba (our own), scipy, ortools (an extra), networkx (slow).
        limit: seconds; a run that would take more by its estimate is refused.
        full: solve all outputs and give their matrix as well.
        stack: where a model has several; encoder and decoder together unless named.

    Reference: Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3.
    """
    if reduce not in REDUCTIONS:
        raise OptionError(f"reduce={reduce!r}; known: {', '.join(REDUCTIONS)}")
    graph = mixing(
        example,
        residual,
        heads,
        normalise,
        start_layer=start_layer,
        last_layer=last_layer,
        stack=stack,
    )
    capacity = np.stack(graph.layers)
    every = full or reduce != "row"
    which = np.arange(len(graph.rows)) if every else np.flatnonzero(graph.rows)
    nodes = [int(u) for u in np.arange(capacity.shape[1])[graph.outputs][which]]
    found = solve_pairs(capacity, nodes, backend, limit)[:, graph.sources]
    notes = flow_notes(capacity, nodes, graph.sources, found, backend) | graph.notes
    if normalise == "sum":
        found = rows_to_one(found)
    if reduce == "row":
        scores = graph.rows[which] @ found
    else:
        scores = found.max(0) if reduce == "max" else found.sum(0)
    return Scores(scores, found if full else None, notes=notes)
