"""Scores that know nothing."""

from __future__ import annotations

import numpy as np

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="uniform draw", signed=False, needs="nothing")
def random_scores(example: Example, *, seed: int = 0) -> Scores:
    """Uniform random numbers: what any method must beat.

    The same input and seed give the same numbers.

    Null: this is it.

    Not for: anything but the null.

    Args:
        seed: of the draw.
    """
    return Scores(np.random.default_rng([seed, *example.ids]).random(len(example)))
