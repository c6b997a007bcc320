"""How well a ranking of heads finds a known circuit: the right way, and as one paper counts."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from jaxtyping import Bool, Float

Array = np.ndarray


def auroc(score: Float[Array, " head"], truth: Bool[Array, " head"]) -> float:
    """The chance that a head of the circuit scores above one outside it, ties counting half.

    NaN where all heads or none are in the circuit.
    """
    inside, outside = score[truth], score[~truth]
    if not len(inside) or not len(outside):
        return float("nan")
    above = (inside[:, None] > outside).mean() + 0.5 * (inside[:, None] == outside).mean()
    return float(above)


def auroc_interval(
    score: Float[Array, " head"], truth: Bool[Array, " head"], *, draws: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """The middle 95 % when the heads inside and outside the circuit are drawn anew."""
    inside, outside = score[truth], score[~truth]
    if not len(inside) or not len(outside):
        return float("nan"), float("nan")
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        some = np.concatenate([rng.choice(inside, len(inside)), rng.choice(outside, len(outside))])
        found.append(auroc(some, np.arange(len(some)) < len(inside)))
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def precision_at(score: Float[Array, " head"], truth: Bool[Array, " head"], k: int) -> float:
    """The share of the first k heads that are in the circuit; equal scores share their places."""
    order = np.argsort(-score, kind="stable")[:k]
    last = score[order[-1]]
    sure = score > last
    tied = score == last
    room = k - int(sure.sum())
    return float((truth[sure].sum() + room * truth[tied].mean()) / k)


def authors_f1(score: Float[Array, " head"], truth: Bool[Array, " head"]) -> float:
    """The best harmonic mean of sensitivity and specificity over thresholds.

    O'Neill and Bui's code calls this F1. It is not: it has no precision in it.
    """
    best = 0.0
    for threshold in np.unique(score):
        said = score >= threshold
        sensitivity = said[truth].mean() if truth.any() else 0.0
        specificity = (~said[~truth]).mean() if (~truth).any() else 0.0
        if sensitivity + specificity > 0:
            mean = 2 * sensitivity * specificity / (sensitivity + specificity)
            best = max(best, float(mean))
    return best


def f1(score: Float[Array, " head"], truth: Bool[Array, " head"]) -> float:
    """The best harmonic mean of precision and recall over thresholds."""
    best = 0.0
    for threshold in np.unique(score):
        said = score >= threshold
        hits = float((said & truth).sum())
        best = max(best, 2 * hits / max(float(said.sum() + truth.sum()), 1.0))
    return best


def marked(names: Collection[str], truth: Collection[str]) -> Bool[Array, " head"]:
    """Which of the names are in the circuit."""
    return np.array([name in set(truth) for name in names])
