"""The layered graph that rollout and flow read: one matrix per layer, attention and residual mixed.

A layer's matrix is `(1 - residual) W + residual I`, where W is a weighted mean of the heads'
patterns. Row i says where position i of that layer's output comes from. Rows of W that do not sum
to one (a sink took a share, a query sees no key) stay as they are unless `normalise="rows"`.
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
    """Refuse what is no share, or no way to normalise.

    Raises:
        OptionError: with what is known.
    """
    number = isinstance(residual, (int, float)) and not isinstance(residual, bool)
    if not number or not 0 <= residual <= 1:
        raise OptionError(f"residual={residual!r}: it is the share of the residual, from 0 to 1")
    if normalise not in NORMALISE:
        raise OptionError(f"normalise={normalise!r}; known: {', '.join(NORMALISE)}")


def reduction_weights(
    heads: Any, sizes: Sequence[int], layers: Sequence[int] | None = None
) -> list[Float[Array, " head"]] | None:
    """Weights of each layer's heads, summing to 1; None where heads are reduced by max or min.

    Args:
        heads: "mean", "max" or "min"; names of heads, which share alike (a list, or one text such
            as "L0H1+L2H3"); or weights, one per head, or per layer and head. A layer whose weights
            are all zero carries the residual alone.
        sizes: heads of each layer.
        layers: the layers' numbers in names of heads; 0, 1, 2, ... unless given.

    Raises:
        OptionError: a head that does not exist; negative weights; weights of another shape.
    """
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
            raise OptionError(f"heads {heads!r} mixes names and weights; give one or the other")
        for head in map(Head.parse, heads):
            if head.layer not in layers or head.head >= sizes[layers.index(head.layer)]:
                have = ", ".join(f"L{a}: {n}" for a, n in zip(layers, sizes, strict=True))
                raise OptionError(
                    f"no head {head} (heads are {', '.join(REDUCTIONS)}, names or weights); "
                    f"heads by layer: {have}"
                )
            weights[layers.index(head.layer)][head.head] = 1
    else:
        weights = _given_weights(heads, sizes)
    if not any(w.any() for w in weights):
        raise OptionError("heads: every weight is zero, so nothing is attended to")
    return [w / w.sum() if w.any() else w for w in weights]


def _given_weights(heads: Any, sizes: Sequence[int]) -> list[Array]:
    try:
        flat = np.ndim(heads[0]) == 0
        rows = [heads] * len(sizes) if flat else list(heads)
        weights = [np.asarray(row, dtype=np.float64) for row in rows]
    except (TypeError, ValueError, IndexError) as error:
        raise OptionError(f"heads={heads!r} is neither {', '.join(REDUCTIONS)}, names nor weights"
                          ) from error  # fmt: skip
    if [w.shape for w in weights] != [(n,) for n in sizes]:
        raise OptionError(
            f"weights of heads have shapes {sorted({w.shape for w in weights})} in {len(weights)} "
            f"layers; the model has {len(sizes)} layers with {sorted(set(sizes))} heads"
        )
    if any(not np.isfinite(w).all() or (w < 0).any() for w in weights):
        raise OptionError("weights of heads must be finite and not below zero")
    return weights


def mixture(
    pattern: Float[Array, "head query_pos key_pos"],
    weights: Float[Array, " head"] | None,
    residual: float,
    *,
    reduction: str = "mean",
    normalise: str = "none",
) -> Float[Array, "query_pos key_pos"]:
    """One layer's matrix in float64; cross attention (no square) gets no residual here.

    Raises:
        OptionError: negative, infinite or NaN attention, which no share can be.
    """
    pattern = np.asarray(pattern, dtype=np.float64)
    if not np.isfinite(pattern).all() or (pattern < 0).any():
        raise OptionError("attention below zero or not finite: it is no share of anything")
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
    """Each row divided by its sum; a row of zeros stays one."""
    total = matrix.sum(-1, keepdims=True)
    return np.divide(matrix, total, out=np.zeros_like(matrix), where=total > 0)


def layer_matrices(
    patterns: Any, residual: float = 0.5, heads: Any = "mean", normalise: str = "none"
) -> Float[Array, "layer query_pos key_pos"]:
    """Every layer's matrix, the lowest first.

    Args:
        patterns: `[layer, head, query_pos, key_pos]`, or one array per layer; three axes are read
            as `[layer, query_pos, key_pos]`, one head per layer.

    Raises:
        OptionError: layers of several lengths, no layers, or attention that is no share.
    """
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
            f"patterns of shapes {[p.shape for p in layers]}; expected [head, pos, pos], of one "
            "length in every layer"
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
    """`rows` times the product of all layers, from the top: vector-matrix products only."""
    for matrix in reversed(list(layers)):
        rows = rows @ matrix
    return rows


def rollout_matrix(
    patterns: Any,
    residual: float = 0.5,
    heads: Any = "mean",
    start_layer: int = 0,
    normalise: str = "none",
) -> Float[Array, "output source"]:
    """Attention rollout of patterns alone: the product of the layers' matrices, top layer first.

    Args:
        patterns: see `layer_matrices`.
        residual: share of the residual stream in each layer.
        heads: see `head_weights`.
        start_layer: the lowest layer that takes part; sources are the states that enter it.
        normalise: "none"; "rows" scales every layer's rows to 1 once the residual is in; "sum"
            scales the rows of the result.

    Raises:
        OptionError: an option or a shape that does not fit.
    """
    layers = layer_matrices(patterns, residual, heads, normalise)
    if not -len(layers) <= start_layer < len(layers):
        raise OptionError(f"start_layer {start_layer}; there are {len(layers)}, counted from 0")
    layers = layers[start_layer % len(layers) :]
    found = rollout_rows(list(layers[:-1]), layers[-1])
    return rows_to_one(found) if normalise == "sum" else found
