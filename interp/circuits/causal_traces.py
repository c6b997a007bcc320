"""Rows of causal tracing: how much a restored activation brings back, by layer and place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error

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
