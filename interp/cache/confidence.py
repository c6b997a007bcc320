"""Choice of heads that separate known sources from other parts of a context, and calibration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.core.ties import ordered

Array = np.ndarray
BINS = 10
"""Bins of equal width of the calibration error."""


def best_separating(
    scores: Sequence[Float[Array, "head part"]], truth: Sequence[Bool[Array, " part"]], k: int
) -> list[int]:
    """Return the k heads whose mean score of sources exceeds that of other parts most."""
    margins = [
        x[:, source].mean(1) - x[:, ~source].mean(1)
        for x, source in zip(scores, truth, strict=True)
    ]
    return ordered(np.mean(margins, 0))[:k]


def source_shares(scores: Float[Array, " part"]) -> Float[Array, " part"]:
    """Return positive scores as shares of their sum; equal shares if none is positive."""
    positive = np.maximum(scores, 0)
    total = positive.sum()
    return positive / total if total > 0 else np.full(len(positive), 1 / len(positive))


def fit_confidence(
    shares: Float[Array, " part"], truth: Bool[Array, " part"]
) -> tuple[Float[Array, " point"], Float[Array, " point"]]:
    """Fit the probability of a source to its share by isotonic regression."""
    from sklearn.isotonic import IsotonicRegression

    model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    model.fit(shares, truth.astype(float))
    return np.asarray(model.X_thresholds_), np.asarray(model.y_thresholds_)


def bins_of_equal_width(probability: Float[Array, " part"], bins: int) -> Int[Array, " part"]:
    """Return the bin of each probability, numbered from 0."""
    return np.minimum((probability * bins).astype(int), bins - 1)


def calibration_error(probability: Float[Array, " part"], truth: Array) -> float:
    """Return the expected calibration error over ten bins of equal width."""
    which = bins_of_equal_width(probability, BINS)
    total = 0.0
    for at in np.unique(which):
        mine = which == at
        total += mine.mean() * abs(probability[mine].mean() - truth[mine].mean())
    return float(total)


def confidence_scores(
    probability: Float[Array, " part"], truth: Bool[Array, " part"]
) -> dict[str, float]:
    """Return the Brier score, that of stating the base rate everywhere, and calibration error."""
    base = float(truth.mean())
    return {
        "brier": float(((probability - truth) ** 2).mean()),
        "brier_of_base_rate": base * (1 - base),
        "calibration_error": calibration_error(probability, truth),
    }
