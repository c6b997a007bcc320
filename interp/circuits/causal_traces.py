"""Rows of causal tracing: how much a restored activation brings back, by layer and place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error

if TYPE_CHECKING:
    import plotly.graph_objects as go

Array = np.ndarray


def trace_rows(
    cells: Sequence[tuple[int, str]],
    gains: Float[Array, "row fact"],
    other: Float[Array, "row fact"] | None,
    noise_error: Float[Array, "row fact"],
    clean: Float[Array, " fact"],
    corrupted: Float[Array, " fact"],
    facts: Mapping[str, Any],
    made: Mapping[str, Any],
) -> ResultRows:
    """Return a row per layer and place; see `causal_tracing` for the columns."""
    rows, total = [], clean - corrupted
    for i, (layer, place) in enumerate(cells):
        there = ~np.isnan(gains[i])
        gain, n = gains[i, there], int(there.sum())
        score = float(gain.mean()) if n else math.nan
        null = other[i, there].mean() if other is not None and n else math.nan
        error = np.sqrt(np.square(noise_error[i, there]).sum()) / max(n, 1)
        rows.append(
            (
                layer,
                place,
                score,
                float(standard_error(gain)),
                float(null),
                n,
                score / float(total[there].mean()) if n else math.nan,
                float(error),
            )
        )
    names = ("layer", "place", "score", "sem", "null", "n", "share", "noise_sem")
    known = {
        "metric": f"{facts['site']} restored, {facts['corrupt']} corrupted",
        "unit": "probability",
        "clean": clean,
        "corrupted": corrupted,
        "total_effect": total,
    }
    return ResultRows(
        "CausalTraces",
        dict(zip(names, zip(*rows, strict=True), strict=True)),
        ("layer", "place"),
        made,
        {**known, **facts},
        gains,
        arrays={"other": other, "noise_error": noise_error},
    )


def causal_traces_summary(found: ResultRows) -> str:
    """Return the effect of the noise, and the places with the largest gains."""
    first = ", ".join(
        f"layer {row['layer']} {row['place']} {row['score']:+.3f}" for row in found.top(3)
    )
    return (
        f"CausalTraces({found.model}, {found.site} restored, {found.corrupt} corrupted:"
        f" {len(found.clean)} facts, probability {found.clean.mean():.3f} to"
        f" {found.corrupted.mean():.3f} by noise; largest gains {first})"
    )


def causal_traces_figure(found: ResultRows) -> go.Figure:
    """Draw the gains of probability."""
    from interp.draw.charts import map_of_places

    layers = f"{found.window} layers of {found.site}" if found.window > 1 else found.site
    title = f"{found.model}: {layers} restored, {found.corrupt} corrupted"
    return map_of_places(found.wide(), "score", title=title, unit="probability")


present(
    "CausalTraces",
    summary=causal_traces_summary,
    plot=causal_traces_figure,
    text="interp.report.printed.circuits:trace_text",
)
