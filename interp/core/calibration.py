"""Measured rates of false findings, written by `benchmarks/calibration.py`.

The benchmark writes `calibration.json` beside this file; every sentence about these rates reads it.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def measured() -> dict[str, Any]:
    """The benchmark's file: family-wise error, coverage, and chance of each metric."""
    text = files("interp.core").joinpath("calibration.json").read_text(encoding="utf-8")
    return json.loads(text)


def measured_error() -> str:
    """The family-wise error of the report's claims, in one sentence."""
    found = measured()["familywise"]
    rates = "; ".join(
        f"{part['of']} {part['claimed']} of {part['models']} models"
        f" ({100 * part['claimed'] / part['models']:.1f} %)"
        for part in found
    )
    return (
        f"Measured on randomly initialised models of {measured()['shapes']}, how many had any head"
        f" called special: {rates}."
    )


def chance_of(metric: str) -> tuple[float, float, float] | None:
    """Median and middle 95 % of a metric over heads of random weights; None if unknown.

    The models are small; the null of a table is the chance on the model scored.
    """
    found = measured()["chance"].get(metric)
    return None if found is None else (found["median"], found["low"], found["high"])
