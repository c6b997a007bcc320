"""Soft removal with matched retention: a random part of the embedding entries is kept.

Soft metrics keep each entry of a token's embedding with a probability that grows with the token's
score (Zhao and Aletras 2023, "Incorporating Attribution Importance for Improving Faithfulness
Metrics"). Without correction, a method with large scores on all tokens keeps more of the input and
therefore appears better. Here the probabilities are scaled so that the expected share of kept
entries is the same for every method (similar to the pi-Soft metrics of Grad-ELLM, arXiv
2601.03089), and all methods use the same random numbers.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from interp.core.errors import OptionError

Array = np.ndarray


def matched_retention(size: Float[Array, " source"], share: float) -> Float[Array, " source"]:
    """Compute probabilities proportional to `size`, capped at 1, whose mean is `share`.

    If too few sizes are positive to reach the share, their probabilities are 1 and the remainder
    is spread equally over the others.
    """
    if not 0 <= share <= 1:
        raise OptionError(f"share={share} is out of range; it must lie between 0 and 1")
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
    """Choose the entries to keep, from uniform random numbers that all methods share."""
    return noise < probability[None, :, None]
