"""Bootstrap draws of a comparison of rankings, shared by rankings over the same prompts."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.causal.comparison.ranking import Ranking
from interp.core.clusters import cluster_count, draw_weights, numbered
from interp.core.statistics import percentile_interval, redraw_counts, tails_of

Array = np.ndarray


def redrawn(
    scores: Float[Array, "method player"],
    per_prompt: Sequence[Float[Array, "player prompt"] | None],
    shared: Sequence[Hashable],
    magnitude: Sequence[bool],
    measure: Callable[[Array], Array],
    n_boot: int,
    seed: int,
    clusters: Sequence[Sequence[Hashable] | None] | None = None,
) -> Float[Array, "draw method method"]:
    """Compute `measure` of the scores on prompts drawn with replacement."""
    rng = np.random.default_rng(seed)
    weights: dict[Hashable, Array] = {}
    labels = [None] * len(scores) if clusters is None else clusters
    for key, values, label in zip(shared, per_prompt, labels, strict=True):
        if values is not None and key not in weights:
            which = numbered(values.shape[1], label)
            n = int(which.max()) + 1
            weights[key] = draw_weights(redraw_counts(n, n_boot, rng), which)
    agreements = np.empty((n_boot, len(scores), len(scores)))
    drawn = np.array(scores, dtype=np.float64)
    for i in range(n_boot):
        for m, values in enumerate(per_prompt):
            if values is not None:
                mean = values @ weights[shared[m]][i]
                drawn[m] = np.abs(mean) if magnitude[m] else mean
        agreements[i] = measure(drawn)
    return agreements


def agreement_interval(
    rankings: Sequence[Ranking],
    scores: Array,
    measure: Any,
    n_boot: int,
    seed: int,
    level: float = 0.95,
) -> Float[Array, "method method 2"]:
    """Compute the bootstrap interval of every pair's agreement over prompts.

    The interval is NaN if neither of the two stored values per prompt, or there are too few.
    """
    m = len(rankings)
    kept = [
        x if x is not None and cluster_count(x.shape[1], r.clusters) > 1 else None
        for r in rankings
        for x in [r.per_prompt]
    ]
    intervals = np.full((m, m, 2), math.nan)
    if n_boot < 2 or all(x is None for x in kept):
        return intervals
    shared = [
        (r.about["task_hash"], 0 if x is None else x.shape[1])
        for r, x in zip(rankings, kept, strict=True)
    ]
    magnitude = [r.magnitude for r in rankings]
    labels = [r.clusters for r in rankings]
    drawn = redrawn(scores, kept, shared, magnitude, measure, n_boot, seed, labels)
    for i, j in combinations(range(m), 2):
        seen = drawn[:, i, j][np.isfinite(drawn[:, i, j])]
        ranked = min(np.ptp(scores[i]), np.ptp(scores[j])) > 0
        if ranked and (kept[i] is not None or kept[j] is not None) and len(seen):
            intervals[i, j] = intervals[j, i] = percentile_interval(seen, tails_of(level))
    return intervals
