"""Scores of heads from weights alone: one per file.

`composition_scores` gives every pair of heads where `q_composition` and its kin give the largest.
"""

from interp.core.room import furnish
from interp.heads.weights._composition import Compositions, composition_scores

__all__ = ["Compositions", "composition_scores"]

furnish(__name__)
