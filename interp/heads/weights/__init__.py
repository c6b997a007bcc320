"""Scores of heads from weights alone.

`composition_scores` gives every pair of heads; `q_composition` and similar metrics give the
largest.
"""

from interp.core.public_names import lazy_analyses
from interp.heads.weights._composition import composition_scores

__all__ = ["composition_scores"]

lazy_analyses(__name__)
