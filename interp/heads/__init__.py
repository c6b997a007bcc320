"""Scores of attention heads: detectors, weights, experiments, and the engine that runs them."""

from typing import Any

from interp.core.public_names import attach
from interp.heads.declaration import Analysis

__getattr__, __dir__, __all__ = attach(
    __name__,
    __file__,
    declared=("detectors", "weights", "geometry", "cross", "experiments"),
)


def _score(*args: Any, **options: Any) -> Any:
    from interp.heads.scoring import score

    return score(*args, **options)


Analysis.scorer = _score  # a declared metric that is called scores every head
