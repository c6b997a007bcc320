"""Comparison of a circuit's scores with the heads of a published circuit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from interp.core.intervals import half_width
from interp.core.presenter import present
from interp.core.rank_statistics import auroc, auroc_interval
from interp.core.result_rows import ResultRows
from interp.core.statistics import TAILS, tails_of

Array = np.ndarray
AUROC = "AUROC of absolute scores"
PRECISION = "published heads among as many top heads"


def comparison_rows(
    name: str,
    effect: Float[Array, " head"],
    known: Bool[Array, " head"],
    found: int,
    of: int,
    made: Mapping[str, Any],
) -> ResultRows:
    """Return AUROC and precision; see `Published.compared`."""
    columns = {
        "metric": [AUROC, PRECISION],
        "score": [auroc(effect, known), found / of],
        "null": [0.5, of / len(known)],
        "n": [len(known), of],
        "unit": ["AUROC", "share of heads"],
        "published": name,
    }
    facts = {"name": name, "effect": effect, "known": known, "found": found, "of": of}
    return ResultRows(
        "PublishedComparison",
        columns,
        ("metric",),
        made,
        facts,
        why_no_per_prompt="it compares the mean scores of heads",
        interval_by="own",
    )


def bounds_of_area(found: ResultRows, level: float) -> Float[Array, "row 2"]:
    """Return the interval of the AUROC, by the bootstrap over heads; precision has none."""
    half_width([(0.0, 1.0)], level)  # refuses levels outside 0 to 1
    tails = TAILS if level == 0.95 else tails_of(level)
    ends = auroc_interval(found.effect, found.known, tails=tails)
    rows = [ends if name == AUROC else (math.nan, math.nan) for name in found.columns["metric"]]
    return np.array(rows, dtype=float).reshape(-1, 2)


def published_figures(compared: ResultRows) -> dict[str, float]:
    """Return AUROC, its 95 % interval, and the published heads that were found."""
    low, high = auroc_interval(compared.effect, compared.known)
    return {
        "auroc": auroc(compared.effect, compared.known),
        "low": low,
        "high": high,
        "found": float(compared.found),
        "of": float(compared.of),
    }


present("PublishedComparison", bounds=bounds_of_area)
