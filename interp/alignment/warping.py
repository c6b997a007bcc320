"""Token times from cross attention: standardised and smoothed weights, and dynamic time warping."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from interp.core.errors import OptionError

Array = np.ndarray
_BOTH, _TOKEN, _FRAME = 0, 1, 2  # steps of a path
_CELLS = 4_000_000  # of the matrices that are filled together


def standardised(weights: Float[Array, "head token frame"]) -> Float[Array, "head token frame"]:
    """Standardise each frame over the tokens (population deviation); constant frames become 0."""
    mean, spread = weights.mean(1, keepdims=True), weights.std(1, keepdims=True)
    flat = spread <= 1e-12 * np.abs(weights).max(initial=0.0)
    return np.where(flat, 0.0, (weights - mean) / np.where(flat, 1.0, spread))


def median_smoothed(weights: Float[Array, "*x frame"], width: int) -> Float[Array, "*x frame"]:
    """Replace each frame by the median of `width` frames around it, reflected at the ends."""
    if width < 1 or width % 2 == 0:
        raise OptionError(f"width={width}: a median filter needs an odd number of frames")
    half = width // 2
    if weights.shape[-1] <= half:
        return weights
    ends = [(0, 0)] * (weights.ndim - 1) + [(half, half)]
    padded = np.pad(weights, ends, mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width, axis=-1), -1)


def first_frames(cost: Float[Array, "matrix token frame"]) -> Int[Array, "matrix token"]:
    """Return the frame at which the cheapest path of each matrix reaches each token."""
    count, tokens, frames = cost.shape
    reached = np.zeros((count, tokens), int)
    size = max(1, _CELLS // ((tokens + 1) * (frames + 1)))
    for at in range(0, count, size):
        moves = _moves(cost[at : at + size])
        every = np.arange(len(moves))
        i, j = np.full(len(moves), tokens), np.full(len(moves), frames)
        for _ in range(tokens + frames):
            here = i > 0  # a path ends at (0, 0), and only there leaves the tokens
            reached[at + every[here], i[here] - 1] = j[here] - 1
            way = moves[every, i, j]
            i, j = i - (here & (way != _FRAME)), j - (here & (way != _TOKEN))
    return reached


def _moves(cost: Float[Array, "matrix token frame"]) -> np.ndarray:
    """Return the last step of the cheapest path to every cell, `[matrix, token + 1, frame + 1]`.

    Cells on one antidiagonal do not depend on each other, so they are filled together.
    """
    count, tokens, frames = cost.shape
    moves = np.zeros((count, tokens + 1, frames + 1), np.int8)
    before = np.full((count, tokens + 1), np.inf)  # totals of the antidiagonal two cells back
    last = before.copy()
    before[:, 0] = 0
    for total in range(2, tokens + frames + 1):
        i = np.arange(max(1, total - frames), min(tokens, total - 1) + 1)
        both, token, frame = before[:, i - 1], last[:, i - 1], last[:, i]
        way = np.where((token < both) & (token < frame), _TOKEN, _FRAME)
        way = np.where((both < token) & (both < frame), _BOTH, way)
        best = np.where(way == _BOTH, both, np.where(way == _TOKEN, token, frame))
        new = np.full_like(last, np.inf)
        new[:, i] = cost[:, i - 1, total - i - 1] + best
        moves[:, i, total - i] = way
        before, last = last, new
    return moves


def smoothed_weights(
    weights: Float[Array, "head token frame"], width: int
) -> Float[Array, "head token frame"]:
    """Standardise weights over tokens and smooth them over frames, for a path through them.

    Reference: the word timestamps of Whisper (Radford et al. 2022, its repository).
    """
    return median_smoothed(standardised(np.asarray(weights, float)), width)
