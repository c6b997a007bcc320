"""Layered graph of rollout and flow: one matrix per layer, a mixture of attention and residual.

The matrix of a layer is `(1 - residual) W + residual I`, where W is a weighted mean of the heads'
patterns. Row i holds the share of each input position in output position i of that layer. Rows of W
that do not sum to one (a sink took a share, or a query sees no key) are unchanged unless
`normalise="rows"`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.core.errors import OptionError
from interp.core.head import Head

Array = np.ndarray
REDUCTIONS = ("mean", "max", "min")
NORMALISE = ("none", "rows", "sum")


def check_options(residual: float, normalise: str) -> None:
    """Check the options `residual` and `normalise`."""
    number = isinstance(residual, (int, float)) and not isinstance(residual, bool)
    if not number or not 0 <= residual <= 1:
        raise OptionError(
            f"residual={residual!r} is invalid; give the share of the residual, from 0 to 1"
        )
    if normalise not in NORMALISE:
        raise OptionError(f"unknown normalise={normalise!r}; known: {', '.join(NORMALISE)}")


def reduction_weights(
    heads: Any, sizes: Sequence[int], layers: Sequence[int] | None = None
) -> list[Float[Array, " head"]] | None:
    """Return the weights of each layer's heads, which sum to 1; None for max and min."""
    if isinstance(heads, str) and heads in REDUCTIONS:
        return [np.full(n, 1 / n) for n in sizes] if heads == "mean" else None
    layers = list(range(len(sizes))) if layers is None else list(layers)
    if isinstance(heads, str):
        heads = [part for part in re.split(r"[+\s]+", heads) if part]
    heads = heads if isinstance(heads, np.ndarray) else list(heads)
    named = [isinstance(h, (str, Head)) for h in heads]
    weights = [np.zeros(n) for n in sizes]
    if any(named):
        if not all(named):
            raise OptionError(
                f"heads={heads!r} mixes names and weights; give either names or weights"
            )
        for head in map(Head.parse, heads):
            if head.layer not in layers or head.head >= sizes[layers.index(head.layer)]:
                have = ", ".join(f"L{a}: {n}" for a, n in zip(layers, sizes, strict=True))
                raise OptionError(
                    f"there is no head {head}; give {', '.join(REDUCTIONS)}, names or weights; "
                    f"heads by layer: {have}"
                )
            weights[layers.index(head.layer)][head.head] = 1
    else:
        weights = _given_weights(heads, sizes)
    if not any(w.any() for w in weights):
        raise OptionError(
            "all weights of heads are zero, so no attention remains; give a weight above 0"
        )
    return [w / w.sum() if w.any() else w for w in weights]


def _given_weights(heads: Any, sizes: Sequence[int]) -> list[Array]:
    try:
        flat = np.ndim(heads[0]) == 0
        rows = [heads] * len(sizes) if flat else list(heads)
        weights = [np.asarray(row, dtype=np.float64) for row in rows]
    except (TypeError, ValueError, IndexError) as error:
        raise OptionError(
            f"heads={heads!r} is invalid; give {', '.join(REDUCTIONS)}, names or weights"
        ) from error
    if [w.shape for w in weights] != [(n,) for n in sizes]:
        raise OptionError(
            f"weights of heads have shapes {sorted({w.shape for w in weights})} in {len(weights)} "
            f"layers; the model has {len(sizes)} layers with {sorted(set(sizes))} heads"
        )
    if any(not np.isfinite(w).all() or (w < 0).any() for w in weights):
        raise OptionError("weights of heads must be finite and not negative")
    return weights


def mixture(
    pattern: Float[Array, "head query_pos key_pos"],
    weights: Float[Array, " head"] | None,
    residual: float,
    *,
    reduction: str = "mean",
    normalise: str = "none",
) -> Float[Array, "query_pos key_pos"]:
    """Compute the matrix of one layer in float64; cross attention gets no residual here."""
    pattern = np.asarray(pattern, dtype=np.float64)
    if not np.isfinite(pattern).all() or (pattern < 0).any():
        raise OptionError(
            "attention is negative or not finite, so it is not a share; use another method"
        )
    n, m = pattern.shape[-2:]
    if weights is None:
        mixed = getattr(pattern, reduction)(axis=0)
    elif weights.any():
        mixed = np.einsum("h,hij->ij", weights, pattern)
    else:
        return np.eye(n, m)
    if n == m:
        mixed = (1 - residual) * mixed
        mixed[np.diag_indices(n)] += residual
    return rows_to_one(mixed) if normalise == "rows" else mixed


def rows_to_one(matrix: Float[Array, "row column"]) -> Float[Array, "row column"]:
    """Divide each row by its sum; a row of zeros stays zero."""
    total = matrix.sum(-1, keepdims=True)
    return np.divide(matrix, total, out=np.zeros_like(matrix), where=total > 0)


def layer_matrices(
    patterns: Any, residual: float = 0.5, heads: Any = "mean", normalise: str = "none"
) -> Float[Array, "layer query_pos key_pos"]:
    """Compute the matrix of every layer, the lowest first."""
    check_options(residual, normalise)
    layers = [np.asarray(p, dtype=np.float64) for p in patterns]
    layers = [p[None] if p.ndim == 2 else p for p in layers]
    shapes = {p.shape[-2:] for p in layers}
    if (
        not layers
        or len(shapes) > 1
        or any(p.ndim != 3 or p.shape[1] != p.shape[2] for p in layers)
    ):
        raise OptionError(
            f"patterns have shapes {[p.shape for p in layers]}; expected [head, pos, pos] with the "
            "same length in every layer"
        )
    weights = reduction_weights(heads, [len(p) for p in layers])
    return np.stack(
        [
            mixture(
                p,
                None if weights is None else weights[i],
                residual,
                reduction=heads if isinstance(heads, str) else "mean",
                normalise=normalise,
            )
            for i, p in enumerate(layers)
        ]
    )


def rollout_rows(
    layers: Sequence[Float[Array, "pos pos"]], rows: Float[Array, "*n pos"]
) -> Float[Array, "*n pos"]:
    """Multiply `rows` by all layers from the top, by vector-matrix products only."""
    for matrix in reversed(list(layers)):
        rows = rows @ matrix
    return rows
