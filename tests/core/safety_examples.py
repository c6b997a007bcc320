"""One example per result class of `interp.safety`, by its full name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import interp
from interp.core.result import Result
from interp.core.result_rows import ResultRows
from interp.safety.curves import SafetyCurves
from interp.safety.marker import marker_sets
from interp.safety.overview import SafetyStudy, study
from interp.safety.removal import Ships


@cache
def safety_study() -> SafetyStudy:
    refusal = interp.load("planted:refusal")
    sets = marker_sets(refusal, n=4)
    return study(
        refusal, sets.harmful, sets.harmless, n_heads=2, n_random=2, forms=["centred"], steps=2
    )


def directions() -> ResultRows:
    return safety_study().search


def safety_curves() -> SafetyCurves:
    return safety_study().curves


def ships() -> Ships:
    return safety_study().ships


def sahara() -> ResultRows:
    return safety_study().sahara[0]


SAFETY_EXAMPLES: dict[str, Callable[[], Result]] = {
    "interp.safety.curves.SafetyCurves": safety_curves,
    "interp.safety.overview.SafetyStudy": safety_study,
    "interp.safety.removal.Ships": ships,
    "DirectionSearch": directions,
    "Sahara": sahara,
}
