"""Attention flow: the maximum flow from an output to an input through attention patterns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.attribution.graph.flow_backends import BACKENDS, error_bound, pair_flows
from interp.attribution.graph.flow_bounds import (
    SATURATED_FROM,
    bounds,
    closed_form,
    estimate_seconds,
    saturated,
)
from interp.attribution.graph.layered import check_options, layer_matrices, rows_to_one
from interp.attribution.graph.maxflow import max_flows
from interp.core.errors import OptionError

Array = np.ndarray


def flow(
    patterns: Any,
    outputs: Sequence[int] | None = None,
    residual: float = 0.5,
    heads: Any = "mean",
    normalise: str = "none",
    backend: str = "numba",
    limit: float = 600.0,
) -> Float[Array, "output source"]:
    """Compute the maximum flow from chosen positions of the top layer to each input position."""
    check_options(residual, normalise)
    capacity = layer_matrices(patterns, residual, heads, normalise)
    chosen = list(range(capacity.shape[1])) if outputs is None else list(outputs)
    flows = solve_pairs(capacity, chosen, backend, limit)
    return rows_to_one(flows) if normalise == "sum" else flows


def solve_pairs(
    capacity: Float[Array, "layer pos pos"],
    outputs: Sequence[int],
    backend: str = "numba",
    limit: float = 600.0,
) -> Float[Array, "output source"]:
    """Compute exact flows of chosen outputs; 0 if no path leads to the input."""
    if backend not in BACKENDS:
        raise OptionError(f"unknown backend {backend!r}; known: {', '.join(BACKENDS)}")
    layers, n = capacity.shape[:2]
    outside = [u for u in outputs if not -n <= u < n]
    if outside:
        raise OptionError(f"outputs {outside} lie outside the {n} positions, counted from 0")
    outputs = [u % n for u in outputs]
    seconds = estimate_seconds(n, layers, len(outputs), backend)
    if seconds > limit:
        fits = int(limit / estimate_seconds(n, layers, 1, backend))
        less = f"choose {fits} outputs or fewer" if fits else "use fewer tokens or layers"
        raise OptionError(
            f"flow by {backend}: {len(outputs)} x {n} pairs in {layers} layers take about "
            f"{seconds:,.0f} s, the limit is {limit:,.0f} s; {less}, or raise limit="
        )
    known = closed_form(capacity, outputs) if backend == "numba" else None
    if known is not None:
        return known
    if backend == "numba":
        return max_flows(capacity, outputs, bounds(capacity, outputs))
    pairs = [(u, v) for u in outputs for v in range(n)]
    return pair_flows(capacity, pairs, backend).reshape(len(outputs), n)


def flow_notes(
    capacity: Float[Array, "layer pos pos"],
    outputs: Sequence[int],
    sources: slice,
    found: Float[Array, "output source"],
    backend: str,
) -> dict[str, Any]:
    """Return notes: shares of saturated flows and of pairs without a path, and warnings."""
    bound = bounds(capacity, list(outputs))[:, sources]
    share = saturated(found, bound)
    notes: dict[str, Any] = {
        "backend": backend,
        "saturated share": None if np.isnan(share) else share,
        "pairs without a path": int((found <= 0).sum()),
        "pairs": found.size,
    }
    error = error_bound(capacity, backend)
    if error:
        notes["error at most"] = error
    if not found.any():
        notes["warning"] = "no path leads from the output to any source: every flow is 0"
    elif share >= SATURATED_FROM and len(capacity) > 1:
        notes["warning"] = (
            f"{share:.0%} of the flows equal the bound set by the output's row or by the input's "
            "column in the first layer: they show little beyond that layer's attention to the input"
        )
    return notes
