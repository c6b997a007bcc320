from .contrast import contrast_pictures
from .dropping import drop_tokens
from .grounding import GroundingHeads, grounding_heads
from .result import ImageTokenEffects
from .sinks import VisualSinks, visual_sinks

__all__ = [
    "GroundingHeads",
    "ImageTokenEffects",
    "VisualSinks",
    "contrast_pictures",
    "drop_tokens",
    "grounding_heads",
    "visual_sinks",
]
