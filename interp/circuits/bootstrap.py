"""How much of a ranking stays when the prompts it was made from are drawn anew."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.circuits.nodes import larger_effect
from interp.core.clusters import numbered
from interp.core.statistics import counts_of, jaccard_by_k, percentile_interval, redraw

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.circuits.declaration import Found

Array = np.ndarray
DRAWS = 1000
EDGE_DRAWS = 200  # a model has hundreds of edges for each of its heads
_FEW = (25, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1000)


def overlaps(
    scores: Float[Array, "node prompt"],
    *,
    conditional: Float[Array, "node prompt"] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    clusters: Sequence[Hashable] | None = None,
) -> Float[Array, "draw size"]:
    """Jaccard overlap of the first k = 1, 2, ... nodes of each draw with those of all prompts.

    Nodes are ordered as `Circuit.ranking` orders them: by the size of their mean score, or of their
    mean conditional effect where that is larger; the first of equals in the given order. With a
    cluster label per prompt whole clusters are drawn.
    """
    n, prompts = scores.shape
    other = np.full_like(scores, np.nan) if conditional is None else conditional
    whole = larger_effect(scores.mean(1), other.mean(1))
    found, which = np.zeros((draws, n)), numbered(prompts, clusters)
    drawn = redraw(int(which.max()) + 1, draws, np.random.default_rng([seed, 7]))
    for i, each in enumerate(counts_of(drawn)):
        times = each[which]
        mine = larger_effect(scores @ times / times.sum(), other @ times / times.sum())
        found[i] = jaccard_by_k(whole, mine)
    return found


def ranking_stability(
    scores: Float[Array, "node prompt"],
    k: int,
    *,
    conditional: Float[Array, "node prompt"] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[float, float, float]:
    """How much of the first k nodes stays when prompts are drawn anew: mean Jaccard, 95 % band.

    Each draw's first k are compared with the first k of all prompts.
    """
    found = overlaps(scores, conditional=conditional, draws=draws, seed=seed)[:, k - 1]
    low, high = percentile_interval(found)
    return float(found.mean()), float(low), float(high)


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
    """Rows of `stability` for every k up to 20 and some beyond, and for the sizes in `also`.

    Args:
        what: is ranked, such as heads. drawn: what the columns are, such as pairs.
        clusters: a label per column, where whole clusters are drawn; `n` counts these then.
    """
    n, prompts = scores.shape
    if prompts < 2 or n < 2:
        return []
    if clusters is not None:
        prompts, drawn = len(set(clusters)), f"clusters of {drawn}"
    found = overlaps(scores, conditional=conditional, draws=draws, seed=seed, clusters=clusters)
    counts = sorted({k for k in (*range(1, 21), *_FEW, *also) if 1 <= k < n})
    low, high = percentile_interval(found, axis=0)
    return [
        {
            "what": what, "k": k, "jaccard": float(found[:, k - 1].mean()),
            "low": float(low[k - 1]), "high": float(high[k - 1]), "drawn": drawn, "n": prompts,
        }
        for k in counts
    ]  # fmt: skip


def labels_of(found: Found, task: ContrastTask) -> tuple[str, ...] | None:
    """A cluster label per column of what a method found; None where columns are no pairs."""
    pairs = found.columns == "pairs" and found.per_prompt.shape[1] == len(task)
    return task.clusters if pairs else None


def of_found(found: Found, task: ContrastTask) -> list[dict[str, Any]]:
    """Rows for the heads that a method scored, and for its edges."""
    at = [i for i, name in enumerate(found.nodes) if name.startswith("L")]
    known = len({h for heads in task.truth.values() for h in heads})
    also = (known, round(len(at) / 10))  # what an evaluation takes for the circuit
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
