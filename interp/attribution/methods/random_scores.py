"""Random scores, the null of attribution methods."""

from __future__ import annotations

import numpy as np

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


@attribution(unit="uniform draw", signed=False, needs="nothing")
def random_scores(example: Example, *, seed: int = 0) -> Scores:
    """Draw uniform random numbers, the null that every method must beat.

    Equal inputs and seeds give equal numbers.

    Null: this method is the null.

    Not for: anything other than the null.

    Args:
        example: the input and its target.
        seed: seed of the random numbers.
    """
    return Scores(np.random.default_rng([seed, *example.ids]).random(len(example)))
