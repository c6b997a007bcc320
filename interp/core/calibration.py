"""Measured false-positive rates, written by `benchmarks/calibration.py`.

The benchmark writes `calibration.json` beside this file; all statements about these rates are
generated from it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from interp.core.documents import parse_json


@cache
def measured() -> dict[str, Any]:
    """Read the benchmark's file: family-wise error, coverage and chance level of each metric."""
    text = files("interp.core").joinpath("calibration.json").read_text(encoding="utf-8")
    return parse_json(text)


def measured_error() -> str:
    """State the measured family-wise error of the report's claims in one sentence."""
    parts = measured()["familywise"]
    rates = "; ".join(
        f"{part['of']} {part['claimed']} of {part['models']} models"
        f" ({100 * part['claimed'] / part['models']:.1f} %)"
        for part in parts
    )
    return (
        f"Measured on randomly initialised models of {measured()['shapes']}, how many had any head"
        f" called special: {rates}."
    )


def chance_of(metric: str) -> tuple[float, float, float] | None:
    """Return the median and the middle 95 % of a metric over heads of random weights.

    None where the metric was not measured. The models are small; the null of a table is measured on
    the scored model itself.
    """
    chance = measured()["chance"].get(metric)
    return None if chance is None else (chance["median"], chance["low"], chance["high"])
