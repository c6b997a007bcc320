"""Bootstrap stability of rankings of heads and edges over resampled prompts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.circuits.nodes import larger_effect
from interp.core.clusters import numbered
from interp.core.rank_statistics import jaccard_by_k
from interp.core.statistics import counts_of, percentile_interval, redraw

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.circuits.declaration import Found

Array = np.ndarray
DRAWS = 1000
EDGE_DRAWS = 200  # fewer, as a model has hundreds of edges per head
_FEW = (25, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1000)


def overlaps(
    scores: Float[Array, "node prompt"],
    *,
    conditional: Float[Array, "node prompt"] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    clusters: Sequence[Hashable] | None = None,
) -> Float[Array, "draw size"]:
    """Compute the Jaccard overlap of each bootstrap draw's top k nodes with those of all prompts.

    There is one column for each k = 1, 2, .... Nodes are ordered as by `Circuit.ranking`: by the
    size of their mean score, or of their mean conditional effect where that is larger; ties keep
    the given order.
    """
    n, prompts = scores.shape
    other = np.full_like(scores, np.nan) if conditional is None else conditional
    whole = larger_effect(scores.mean(1), other.mean(1))
    shares, which = np.zeros((draws, n)), numbered(prompts, clusters)
    drawn = redraw(int(which.max()) + 1, draws, np.random.default_rng([seed, 7]))
    for i, each in enumerate(counts_of(drawn)):
        times = each[which]
        mine = larger_effect(scores @ times / times.sum(), other @ times / times.sum())
        shares[i] = jaccard_by_k(whole, mine)
    return shares


def ranking_stability(
    scores: Float[Array, "node prompt"],
    k: int,
    *,
    conditional: Float[Array, "node prompt"] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Estimate the stability of the top k nodes: mean Jaccard overlap and 95 % interval.

    The top k nodes of each bootstrap draw are compared with the top k of all prompts.
    """
    jaccard = overlaps(scores, conditional=conditional, draws=draws, seed=seed)[:, k - 1]
    low, high = percentile_interval(jaccard)
    return float(jaccard.mean()), float(low), float(high)


def stability_rows(
    scores: Float[Array, "node prompt"],
    what: str,
    drawn: str,
    *,
    also: Sequence[int] = (),
    conditional: Float[Array, "node prompt"] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    clusters: Sequence[Hashable] | None = None,
) -> list[dict[str, Any]]:
    """Tabulate `ranking_stability` for every k up to 20, some larger k, and the sizes in `also`."""
    n, prompts = scores.shape
    if prompts < 2 or n < 2:
        return []
    if clusters is not None:
        prompts, drawn = len(set(clusters)), f"clusters of {drawn}"
    jaccard = overlaps(scores, conditional=conditional, draws=draws, seed=seed, clusters=clusters)
    counts = sorted({k for k in (*range(1, 21), *_FEW, *also) if 1 <= k < n})
    low, high = percentile_interval(jaccard, axis=0)
    return [
        {
            "what": what,
            "k": k,
            "jaccard": float(jaccard[:, k - 1].mean()),
            "low": float(low[k - 1]),
            "high": float(high[k - 1]),
            "drawn": drawn,
            "n": prompts,
        }
        for k in counts
    ]


def labels_of(found: Found, task: ContrastTask) -> tuple[str, ...] | None:
    """Return a cluster label per column of a method's result; None where columns are not pairs."""
    pairs = found.columns == "pairs" and found.per_prompt.shape[1] == len(task)
    return task.clusters if pairs else None


def of_found(found: Found, task: ContrastTask) -> list[dict[str, Any]]:
    """Tabulate the stability of the heads, and of the edges, that a method scored."""
    at = [i for i, name in enumerate(found.nodes) if name.startswith("L")]
    known = len({h for heads in task.truth.values() for h in heads})
    also = (known, round(len(at) / 10))  # sizes that an evaluation uses for the circuit
    other = None if found.conditional is None else found.conditional[at]
    labels = labels_of(found, task)
    rows = stability_rows(
        found.per_prompt[at], "heads", found.columns, also=also, conditional=other, clusters=labels
    )
    if found.edges_per_prompt is not None:
        rows += stability_rows(
            found.edges_per_prompt, "edges", found.columns, draws=EDGE_DRAWS, clusters=labels
        )
    return rows
