"""Attention flow: maximum flow from an output to each token with attention as capacity."""

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
    """Compute the maximum flow from the target's output position to each token through attention.

    Each pair of output and token is a separate exact maximum flow. A flow never exceeds the total
    attention to the token in the first layer (its column sum) nor the capacity that leaves the
    output. In deep models most pairs reach this bound, so the scores show little beyond the first
    layer. The notes give the share of such pairs, with a warning if it is at least one half.

    Cost: One maximum flow per token for one output; n times as many for all outputs.

    Not for: deep models: most flows reach the bound set by the first layer and show little else
    (the notes give their share). Long inputs take minutes.

    Args:
        example: the input and its target.
        residual: share of the residual stream in the capacities, 0 to 1.
        heads: as for rollout.
        start_layer: the lowest layer included; sources are the states that enter it.
        last_layer: the highest layer included.
        normalise: sum scales each output's flows to sum 1, as the authors do; none does not scale;
            rows scales every layer's rows instead, after the residual is added.
        reduce: row uses the outputs of the target with their weights in it; max and sum reduce over
            all outputs.
        backend: numba (the project's own), scipy, ortools (an extra), networkx (slow).
        limit: largest estimated time in seconds; a longer run raises an error.
        full: True to solve all outputs and return their matrix as well.
        stack: name of the stack, if the model has several; encoder and decoder together by default.

    Reference: Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3.
    """
    if reduce not in REDUCTIONS:
        raise OptionError(f"unknown reduce={reduce!r}; known: {', '.join(REDUCTIONS)}")
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
    flows = solve_pairs(capacity, nodes, backend, limit)[:, graph.sources]
    notes = flow_notes(capacity, nodes, graph.sources, flows, backend) | graph.notes
    if normalise == "sum":
        flows = rows_to_one(flows)
    if reduce == "row":
        scores = graph.rows[which] @ flows
    else:
        scores = flows.max(0) if reduce == "max" else flows.sum(0)
    return Scores(scores, flows if full else None, notes=notes)
