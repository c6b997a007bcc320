"""Numbers of dimensions that hold most variance of the vectors that a head reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from interp.core.clusters import jackknife_error
from interp.profiles.judgement import PROBABILITIES, Number

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from interp.profiles.head_edges import HeadEdges

HELD = 0.9  # share of the variance
GROUPS = 20  # of documents, each of which is left out once
FEWEST_EDGES = 50
METRICS = {
    "query_dimensions": ("queries", ""),
    "key_dimensions": ("keys", "other_keys"),
    "value_dimensions": ("values", "other_values"),
    "output_dimensions": ("outputs", ""),
}
"""Vectors of each metric, and those of keys that position draws, which are its null."""


def dimensions_read(
    edges: HeadEdges, document_of: Int[np.ndarray, " window"], n: int
) -> dict[str, tuple[Number, float, int]]:
    """Return number, null and count of documents of every metric that the attention has."""
    numbers: dict[str, tuple[Number, float, int]] = {}
    if len(edges.weight) < FEWEST_EDGES:
        return numbers
    document = document_of[edges.window]
    for metric, (name, other) in METRICS.items():
        if name in edges.vectors:
            number = dimensions_of(edges.vectors[name], edges.weight, document)
            null = float("nan")
            if other in edges.vectors:
                null = dimensions_of(edges.vectors[other], edges.weight, document).value
            numbers[metric] = number, null, n
    return numbers


def dimensions_of(
    vectors: Float[np.ndarray, "edge dim"],
    weight: Float[np.ndarray, " edge"],
    document: Int[np.ndarray, " edge"],
) -> Number:
    """Return the number of principal components that hold 90 % of the variance of some vectors.

    Between two components it is interpolated, so that it moves with the variance. A jackknife over
    groups of documents corrects its bias (of few vectors it is too small) and gives its interval.
    """
    from scipy.special import stdtrit

    names, at = np.unique(document, return_inverse=True)
    groups = min(GROUPS, len(names))
    one = np.concatenate([np.ones((len(vectors), 1)), vectors - vectors.mean(0)], 1)
    sums = np.zeros((groups, one.shape[1], one.shape[1]))
    for group in range(groups):
        mine = at % groups == group
        sums[group] = (one[mine] * weight[mine, None]).T @ one[mine]
    whole = sums.sum(0)
    value, *each = _held(np.concatenate([whole[None], whole - sums])).tolist()
    spread = np.asarray(each)
    value = groups * value - (groups - 1) * float(spread.mean())
    error = jackknife_error(spread)
    ends = value + error * stdtrit(max(groups - 1, 1), PROBABILITIES)
    return Number(value, tuple(np.clip(ends, 0, vectors.shape[1]).tolist()))


def _held(sums: Float[np.ndarray, "sample row row"]) -> Float[np.ndarray, " sample"]:
    """Return the number of components of every sample, from its sums of products after a 1."""
    mean = sums[:, 0, 1:] / sums[:, :1, 0]
    spread = sums[:, 1:, 1:] / sums[:, :1, :1] - mean[:, :, None] * mean[:, None]
    size = np.maximum(np.linalg.eigvalsh(spread)[:, ::-1], 0)
    share = np.cumsum(size, 1) / np.maximum(size.sum(1, keepdims=True), 1e-30)
    first = (share < HELD).sum(1)
    row = np.arange(len(share))
    before = np.where(first > 0, share[row, np.maximum(first - 1, 0)], 0)
    last = np.minimum(first, share.shape[1] - 1)
    return first + (HELD - before) / np.maximum(share[row, last] - before, 1e-30)
