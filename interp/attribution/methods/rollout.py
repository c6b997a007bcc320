"""Attention rollout: the product of the layers' attention matrices mixed with the residual."""

from __future__ import annotations

from typing import Any

import numpy as np

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.attribution.graph.layered import rollout_rows, rows_to_one
from interp.attribution.graph.mixing import mixing


@attribution(unit="share of the output", signed=False, needs="patterns")
def rollout(
    example: Example,
    *,
    residual: float = 0.5,
    heads: Any = "mean",
    start_layer: int = 0,
    last_layer: int = -1,
    normalise: str = "none",
    full: bool = False,
    engine: str = "auto",
    stack: str = "",
) -> Scores:
    """Compute each token's share in the target's output position, if attention mixed the states.

    Each layer is `(1 - residual) * attention + residual * identity`, and the layers are multiplied.
    The score ignores values and MLPs. On trained models it predicts the effect on a task hardly
    better than chance, so use it as a baseline.

    An encoder-decoder is one graph over the tokens of both stacks: a cross attention keeps
    `residual` of the decoder's state and takes the rest from the encoder's. Scores refer to the
    encoder's tokens and sum to 1 minus the share of the decoder's own tokens.

    Cost: One forward pass and a product of n x n matrices per layer.

    Not for: evidence for or against a token: on a real encoder it was not significantly different
    from random scores (benchmarks/faithfulness.md). Use it as a baseline.

    Args:
        example: the input and its target.
        residual: share of the residual stream, 0 to 1.
        heads: mean, max, min; names such as L0H1+L2H3 (from Python also a list of names, or
            weights per head, or per layer and head). Layers without a named head carry only the
            residual.
        start_layer: the lowest layer included; sources are the states that enter it.
        last_layer: the highest layer included.
        normalise: none keeps rows that do not sum to 1 (sinks, masked rows, max or min of heads);
            rows scales each layer's rows after the residual is added; sum scales the scores.
        full: True to return the matrix of all outputs as well.
        engine: stored keeps every pattern; streamed keeps queries and keys and computes patterns in
            blocks, with memory linear in the length, for weighted heads of one stack and without
            full; auto streams above 256 MiB of patterns. A requested engine is never replaced.
        stack: name of the stack, if the model has several; encoder and decoder together by default.

    Reference: Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3.
    """
    from interp.attribution.graph.streamed_rollout import choose_rollout_engine, streamed_rows

    options: dict[str, Any] = {
        "residual": residual,
        "heads": heads,
        "normalise": normalise,
        "start_layer": start_layer,
        "last_layer": last_layer,
        "stack": stack,
    }
    if choose_rollout_engine(example, engine, heads, full=full, stack=stack) == "streamed":
        scores, notes = streamed_rows(example, **options)
        return Scores(_scaled(scores, normalise), notes={"engine": "streamed"} | notes)
    graph = mixing(example, **options)
    nodes = graph.rows[None]
    if full:
        nodes = np.concatenate([nodes, np.eye(len(graph.rows))])
    shares = rollout_rows(graph.layers, graph.of_outputs(nodes))
    notes = {"engine": "stored"} | graph.notes
    if graph.sources != slice(None):
        notes["share of the decoder's own tokens"] = float(shares[0, graph.outputs].sum())
    shares = _scaled(shares[:, graph.sources], normalise)
    return Scores(shares[0], shares[1:] if full else None, notes=notes)


def _scaled(found: np.ndarray, normalise: str) -> np.ndarray:
    return rows_to_one(found) if normalise == "sum" else found
