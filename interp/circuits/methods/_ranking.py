"""Figures for how well a ranking of heads recovers a known circuit."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from jaxtyping import Bool, Float

from interp.core.ties import ordered, snapped

Array = np.ndarray


def precision_at(score: Float[Array, " head"], truth: Bool[Array, " head"], k: int) -> float:
    """Compute the share of the top k heads that are in the circuit, averaged over ties."""
    score = snapped(score)
    last = score[ordered(score)[:k][-1]]
    sure = score > last
    tied = score == last
    room = k - int(sure.sum())
    return float((truth[sure].sum() + room * truth[tied].mean()) / k)


def authors_f1(score: Float[Array, " head"], truth: Bool[Array, " head"]) -> float:
    """Compute the best harmonic mean of sensitivity and specificity over thresholds.

    O'Neill and Bui's code calls this F1. It is not F1, because it does not contain precision.
    """
    best = 0.0
    for threshold in np.unique(score):
        chosen = score >= threshold
        sensitivity = chosen[truth].mean() if truth.any() else 0.0
        specificity = (~chosen[~truth]).mean() if (~truth).any() else 0.0
        if sensitivity + specificity > 0:
            mean = 2 * sensitivity * specificity / (sensitivity + specificity)
            best = max(best, float(mean))
    return best


def f1(score: Float[Array, " head"], truth: Bool[Array, " head"]) -> float:
    """Compute the best harmonic mean of precision and recall over thresholds."""
    best = 0.0
    for threshold in np.unique(score):
        chosen = score >= threshold
        hits = float((chosen & truth).sum())
        best = max(best, 2 * hits / max(float(chosen.sum() + truth.sum()), 1.0))
    return best


def marked(names: Collection[str], truth: Collection[str]) -> Bool[Array, " head"]:
    """Return a mask of the names that are in the circuit."""
    return np.array([name in set(truth) for name in names])
