"""Which heads a model declines with: the refusal direction, and scores of heads around it.

    prompts     harmful and harmless sets, from files or made of ids    prompts.py, marker.py
    direction   the difference of the sets' means, and what it does     direction.py, selection.py
    heads       what each writes along it, in one forward               projection.py
                what the next token loses without each                  removal.py
                how far the prompts' main axis turns without each       subspace.py
    curves      the top heads out one after another, and the damage     curves.py
    spread      over how many heads a score is spread                   concentration.py
    all of it   `study(model, harmful, harmless)`                       overview.py

None of these scores knows what harm is: they say what tells two sets of prompts apart. A score on
harmful prompts alone mixes what a head does for safety with what it does for everything, so each
comes with the same on harmless prompts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.safety.concentration import Spread, participation_ratio, spread
    from interp.safety.curves import SafetyCurves, safety_curves
    from interp.safety.direction import Direction, candidates
    from interp.safety.marker import marker_sets
    from interp.safety.overview import SafetyStudy, study
    from interp.safety.projection import refusal_projection
    from interp.safety.prompts import PromptSets, read_labelled, read_prompts, templated
    from interp.safety.removal import Ships, ships
    from interp.safety.selection import DirectionSearch, search_direction
    from interp.safety.subspace import Sahara, principal_angle, sahara
    from interp.safety.task import refusal_log_odds

_WHERE = {
    "Direction": "direction",
    "DirectionSearch": "selection",
    "PromptSets": "prompts",
    "SafetyCurves": "curves",
    "SafetyStudy": "overview",
    "Sahara": "subspace",
    "Ships": "removal",
    "Spread": "concentration",
    "candidates": "direction",
    "marker_sets": "marker",
    "participation_ratio": "concentration",
    "principal_angle": "subspace",
    "read_labelled": "prompts",
    "read_prompts": "prompts",
    "refusal_log_odds": "task",
    "refusal_projection": "projection",
    "safety_curves": "curves",
    "sahara": "subspace",
    "search_direction": "selection",
    "ships": "removal",
    "spread": "concentration",
    "study": "overview",
    "templated": "prompts",
}

__all__ = [
    "Direction",
    "DirectionSearch",
    "PromptSets",
    "SafetyCurves",
    "SafetyStudy",
    "Sahara",
    "Ships",
    "Spread",
    "candidates",
    "marker_sets",
    "participation_ratio",
    "principal_angle",
    "read_labelled",
    "read_prompts",
    "refusal_log_odds",
    "refusal_projection",
    "safety_curves",
    "sahara",
    "search_direction",
    "ships",
    "spread",
    "study",
    "templated",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'interp.safety' has no attribute {name!r}")
    return getattr(import_module(f"interp.safety.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
