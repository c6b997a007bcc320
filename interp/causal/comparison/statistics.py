"""Rank correlations and top-k overlaps of several rankings at once, with bootstrap draws.

Spearman's rho is Pearson's r of mid-ranks; Kendall's tau is tau-b, which corrects for ties. Both
are NaN where a ranking is constant, since it then orders nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import combinations_with_replacement

import numpy as np
from jaxtyping import Float

from interp.core.clusters import numbered, shares

Array = np.ndarray


def spearman(scores: Float[Array, "method player"]) -> Float[Array, "method method"]:
    """Spearman's rank correlation of every pair, with mid-ranks for ties."""
    from scipy.stats import rankdata

    ranks = rankdata(scores, axis=1)
    return _cosine(ranks - ranks.mean(1, keepdims=True))


def kendall(scores: Float[Array, "method player"]) -> Float[Array, "method method"]:
    """Kendall's tau-b of every pair; tied pairs of players count for neither side."""
    m, n = scores.shape
    if n <= _ALL_PAIRS:  # signs of all differences at once: one product for all methods
        sign = np.sign(scores[:, :, None] - scores[:, None]).reshape(m, -1).astype(np.float32)
        return _normalised((sign @ sign.T).astype(np.float64))
    from scipy.stats import kendalltau  # sorts: slow to start, but grows as n log n

    found = np.full((m, m), np.nan)
    varied = np.flatnonzero(np.ptp(scores, axis=1) > 0).tolist()
    for i, j in combinations_with_replacement(varied, 2):
        tau, _ = (1.0, 0.0) if i == j else kendalltau(scores[i], scores[j], method="asymptotic")
        found[i, j] = found[j, i] = tau
    return found


_ALL_PAIRS = 256  # players; float32 counts their pairs exactly


def _cosine(rows: Array) -> Array:
    return _normalised(rows @ rows.T)


def _normalised(products: Array) -> Array:
    """Products of pairs over the lengths of both; NaN where a length is 0."""
    squares = np.diag(products)
    scale = np.sqrt(np.outer(squares, squares))  # so that a ranking and itself give exactly 1
    found = np.full(products.shape, np.nan)
    return np.divide(products, scale, out=found, where=scale > 0).clip(-1, 1)


def top(scores: Float[Array, " player"], k: int) -> set[int]:
    """The k players that rank first; equal scores keep the players' order."""
    return set(np.argsort(-scores, kind="stable")[:k].tolist())


def by_chance(overlap: int, k: int, n: int) -> float:
    """How often two random top-k lists of n players share at least this many (hypergeometric)."""
    from scipy.stats import hypergeom

    return float(hypergeom.sf(overlap - 1, n, k, k))


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
            weights[key] = shares(rng.multinomial(n, np.full(n, 1 / n), size=n_boot), which)
    found = np.empty((n_boot, len(scores), len(scores)))
    drawn = np.array(scores, dtype=np.float64)
    for i in range(n_boot):
        for m, values in enumerate(per_prompt):
            if values is not None:
                mean = values @ weights[shared[m]][i]
                drawn[m] = np.abs(mean) if magnitude[m] else mean
        found[i] = measure(drawn)
    return found
