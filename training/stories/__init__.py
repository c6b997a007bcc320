"""Short English texts of a small world, in which every word carries its truth.

from training.stories import story
print(story(7).text)
"""

from __future__ import annotations

from training.stories.markup import Annotation
from training.stories.texts import (
    RELATIONS,
    UNSEEN_COMBINATIONS,
    UNSEEN_TEXTS,
    Story,
    generator_hash,
    stories,
    story,
)

__all__ = [
    "RELATIONS",
    "UNSEEN_COMBINATIONS",
    "UNSEEN_TEXTS",
    "Annotation",
    "Story",
    "generator_hash",
    "stories",
    "story",
]
