from .contrast import contrast_pictures
from .dropping import drop_tokens
from .grounding import grounding_heads
from .sinks import visual_sinks

__all__ = [
    "contrast_pictures",
    "drop_tokens",
    "grounding_heads",
    "visual_sinks",
]
