"""One example per result class of `interp.safety`, by its full name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import interp
from interp.core.result import Result
from interp.core.result_rows import ResultRows
from interp.safety.marker import marker_sets
from interp.safety.overview import study


@cache
def safety_study() -> ResultRows:
    refusal = interp.load("planted:refusal")
    sets = marker_sets(refusal, n=4)
    return study(
        refusal, sets.harmful, sets.harmless, n_heads=2, n_random=2, forms=["centred"], steps=2
    )


def directions() -> ResultRows:
    return safety_study().search


def safety_curves() -> ResultRows:
    return safety_study().curves


def ships() -> ResultRows:
    return safety_study().ships


def sahara() -> ResultRows:
    return safety_study().sahara[0]


SAFETY_EXAMPLES: dict[str, Callable[[], Result]] = {
    "SafetyCurves": safety_curves,
    "SafetyStudy": safety_study,
    "Ships": ships,
    "DirectionSearch": directions,
    "Sahara": sahara,
}
