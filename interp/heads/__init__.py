"""Scores of attention heads: detectors, weights, experiments, and the engine that runs them."""

from interp.core.face import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    __file__,
    declared=("detectors", "weights", "geometry", "cache", "cross", "experiments"),
)
