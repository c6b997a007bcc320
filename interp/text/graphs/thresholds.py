"""Thresholds that turn a matrix of attention into the edges of a graph."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from interp.core.errors import OptionError, UnknownName

KINDS = {
    "value": "weights of at least this value",
    "count": "this many largest weights",
    "row": "this many largest weights of each row",
    "disparity": "weights that are significant at this level in their row or their column",
}


def kept_edges(
    weights: Float[np.ndarray, "node node"], threshold: str
) -> Bool[np.ndarray, "node node"]:
    """Return which entries of a matrix are edges; the diagonal and zeros never are.

    `value:0.1` keeps weights of at least .1, `count:50` the 50 largest, `row:2` the two largest of
    each row, `disparity:0.05` those that are larger than expected at this level if the strength of
    a node were divided among its edges at random: (1 - share) ** (edges - 1) below the level, in
    the row or in the column. A node with one edge gives no evidence on that side. Of equal weights
    at the limit of a count, the earlier ones are kept.

    Reference: Serrano, Boguna and Vespignani 2009, "Extracting the multiscale backbone of complex
    weighted networks" (disparity).
    """
    kind, _, text = threshold.partition(":")
    if kind not in KINDS:
        raise UnknownName("threshold", kind, KINDS)
    try:
        number = float(text)
    except ValueError as error:
        raise OptionError(
            f"threshold {threshold!r}: give a number after the colon, such as {kind}:2"
        ) from error
    whole = kind in ("count", "row")
    if not np.isfinite(number) or number < 0 or (whole and (number < 1 or number % 1)):
        raise OptionError(
            f"threshold {threshold!r}: give {'a whole number from 1' if whole else 'a number >= 0'}"
        )
    if kind == "disparity" and not 0 < number < 1:
        raise OptionError(f"threshold {threshold!r}: a level lies between 0 and 1")
    w = np.where(np.eye(len(weights), dtype=bool), 0.0, weights)
    there = w > 0
    if kind == "value":
        return there & (w >= number)
    if kind == "count":
        largest = np.zeros(w.size, dtype=bool)
        largest[np.argsort(-w, axis=None, kind="stable")[: int(number)]] = True
        return largest.reshape(w.shape) & there
    if kind == "row":
        largest = np.zeros_like(there)
        order = np.argsort(-w, axis=1, kind="stable")[:, : int(number)]
        np.put_along_axis(largest, order, True, axis=1)
        return largest & there
    return there & (_significant(w, number) | _significant(w.T, number).T)


def _significant(w: np.ndarray, level: float) -> np.ndarray:
    strength, degree = w.sum(1, keepdims=True), (w > 0).sum(1, keepdims=True)
    share = w / np.where(strength > 0, strength, 1)
    return (degree > 1) & ((1 - share) ** (degree - 1) < level)
