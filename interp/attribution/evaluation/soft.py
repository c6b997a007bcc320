"""Soft removal with matched retention: entries of the embeddings are kept at random.

Soft metrics keep each entry of a token's embedding with a probability that grows with the token's
score (Zhao and Aletras 2023, "Incorporating Attribution Importance for Improving Faithfulness
Metrics"). Left as it is, a method whose scores are large all over keeps more of the input and looks
better for it. Here the probabilities are scaled until the expected share that is kept is the same
for every method (the pi-Soft metrics of Grad-ELLM, arXiv 2601.03089, in kind), and all methods see
the same random numbers.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from interp.core.errors import OptionError

Array = np.ndarray


def matched_retention(size: Float[Array, " source"], share: float) -> Float[Array, " source"]:
    """Probabilities in proportion to `size`, capped at 1, whose mean is `share`.

    Where too few sizes are above zero to hold the share, those are 1 and the rest have equal parts.
    """
    if not 0 <= share <= 1:
        raise OptionError(f"share={share}; it lies between 0 and 1")
    size = np.maximum(np.asarray(size, dtype=np.float64), 0.0)
    n, want = len(size), share * len(size)
    full = np.zeros(n, dtype=bool)
    while True:
        left, rest = want - full.sum(), size * ~full
        if left <= 0:
            break
        if rest.sum() == 0:
            return np.where(full, 1.0, left / max((~full).sum(), 1))
        probability = rest * (left / rest.sum())
        over = probability >= 1
        if not over.any():
            return np.where(full, 1.0, probability)
        full |= over
    return full.astype(float)


def kept(
    probability: Float[Array, " source"], noise: Float[Array, "draw source d_model"]
) -> Bool[Array, "draw source d_model"]:
    """Which entries are kept, from uniform numbers that all methods share."""
    return noise < probability[None, :, None]
