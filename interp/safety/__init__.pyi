from .concentration import spread
from .curves import damage_at, outside_band, safety_curves
from .marker import marker_sets
from .overview import study
from .projection import refusal_projection_scores
from .prompts import read_prompts
from .removal import ships_scores
from .selection import chosen_direction, search_direction
from .subspace import sahara
from .task import refusal_log_odds

__all__ = [
    "chosen_direction",
    "damage_at",
    "marker_sets",
    "outside_band",
    "read_prompts",
    "refusal_log_odds",
    "refusal_projection_scores",
    "safety_curves",
    "sahara",
    "search_direction",
    "ships_scores",
    "spread",
    "study",
]
