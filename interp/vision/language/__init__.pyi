from .contrast import contrast_pictures
from .dropping import drop_tokens
from .gaze import gaze_heads
from .grounding import grounding_heads
from .redistribution import redistribute, redistribution
from .schedule import pruning_schedule
from .sinks import visual_sinks

__all__ = [
    "contrast_pictures",
    "drop_tokens",
    "gaze_heads",
    "grounding_heads",
    "pruning_schedule",
    "redistribute",
    "redistribution",
    "visual_sinks",
]
