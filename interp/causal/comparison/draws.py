"""Bootstrap draws of a comparison of rankings, shared by rankings over the same prompts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from jaxtyping import Float

from interp.core.clusters import draw_weights, numbered
from interp.core.statistics import redraw_counts

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
    """`measure` of the scores on prompts drawn with replacement.

    Args:
        per_prompt: None for a method whose prompts were not kept: its scores stay as they are.
        shared: methods with equal keys saw the same prompts and get the same draw.
        magnitude: the score is the size of the mean over the drawn prompts.
        clusters: for each method a label per prompt, or None where prompts share nothing; whole
            clusters are drawn.
    """
    rng = np.random.default_rng(seed)
    weights: dict[Hashable, Array] = {}
    labels = [None] * len(scores) if clusters is None else clusters
    for key, values, label in zip(shared, per_prompt, labels, strict=True):
        if values is not None and key not in weights:
            which = numbered(values.shape[1], label)
            n = int(which.max()) + 1
            weights[key] = draw_weights(redraw_counts(n, n_boot, rng), which)
    found = np.empty((n_boot, len(scores), len(scores)))
    drawn = np.array(scores, dtype=np.float64)
    for i in range(n_boot):
        for m, values in enumerate(per_prompt):
            if values is not None:
                mean = values @ weights[shared[m]][i]
                drawn[m] = np.abs(mean) if magnitude[m] else mean
        found[i] = measure(drawn)
    return found
