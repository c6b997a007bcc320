from .concentration import Spread, participation_ratio, spread
from .curves import damage_at, outside_band, safety_curves
from .direction import Direction, candidates
from .marker import marker_sets
from .overview import study
from .projection import refusal_projection_scores
from .prompts import PromptSets, read_labelled, read_prompts, templated
from .removal import ships_scores
from .selection import chosen_direction, search_direction
from .subspace import principal_angle, sahara
from .task import refusal_log_odds

__all__ = [
    "Direction",
    "PromptSets",
    "Spread",
    "candidates",
    "chosen_direction",
    "damage_at",
    "marker_sets",
    "outside_band",
    "participation_ratio",
    "principal_angle",
    "read_labelled",
    "read_prompts",
    "refusal_log_odds",
    "refusal_projection_scores",
    "safety_curves",
    "sahara",
    "search_direction",
    "ships_scores",
    "spread",
    "study",
    "templated",
]
