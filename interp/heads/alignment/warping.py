"""Token times from cross attention: standardised and smoothed weights, and dynamic time warping."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from interp.core.errors import OptionError

Array = np.ndarray


def standardised(weights: Float[Array, "head token frame"]) -> Float[Array, "head token frame"]:
    """Standardise each frame over the tokens (population deviation); constant frames become 0."""
    mean, spread = weights.mean(1, keepdims=True), weights.std(1, keepdims=True)
    flat = spread <= 1e-12 * np.abs(weights).max(initial=0.0)
    return np.where(flat, 0.0, (weights - mean) / np.where(flat, 1.0, spread))


def median_smoothed(weights: Float[Array, "*x frame"], width: int) -> Float[Array, "*x frame"]:
    """Replace each frame by the median of `width` frames around it, reflected at the ends.

    Raises:
        OptionError: the width is not a positive odd number.
    """
    if width < 1 or width % 2 == 0:
        raise OptionError(f"width={width}: a median filter needs an odd number of frames")
    half = width // 2
    if weights.shape[-1] <= half:
        return weights
    ends = [(0, 0)] * (weights.ndim - 1) + [(half, half)]
    padded = np.pad(weights, ends, mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width, axis=-1), -1)


def warping_path(cost: Float[Array, "token frame"]) -> Int[Array, "step 2"]:
    """Return the cheapest path from the first to the last cell, in steps of one token or frame.

    A step moves one token, one frame or both; of equal ones the move by a frame is taken.
    """
    tokens, frames = cost.shape
    total = np.full((tokens + 1, frames + 1), np.inf)
    move = np.zeros((tokens + 1, frames + 1), np.int8)
    total[0, 0] = 0
    for j in range(1, frames + 1):
        for i in range(1, tokens + 1):
            both, token, frame = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
            if both < token and both < frame:
                best, way = both, 0
            elif token < both and token < frame:
                best, way = token, 1
            else:
                best, way = frame, 2
            total[i, j], move[i, j] = cost[i - 1, j - 1] + best, way
    move[0, :], move[:, 0] = 2, 1
    i, j, path = tokens, frames, []
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        way = move[i, j]
        i, j = i - (way != 2), j - (way != 1)
    return np.array(path[::-1]).reshape(-1, 2)


def token_frames(weights: Float[Array, "head token frame"], width: int = 7) -> Int[Array, " token"]:
    """Return the first frame of every token, from the cross attention of some heads.

    Weights are standardised over tokens, smoothed by a median filter over frames and averaged over
    heads; a monotone path of largest total weight gives each token its frames.

    Args:
        weights: cross attention without rows of the prompt and frames beyond the sound.
        width: frames of the median filter.

    Reference: the word timestamps of Whisper (Radford et al. 2022, its repository).

    Raises:
        OptionError: there is no token, frame or head, or the width is not odd.
    """
    if 0 in weights.shape:
        raise OptionError(f"no {('head', 'token', 'frame')[weights.shape.index(0)]} to align")
    matrix = median_smoothed(standardised(np.asarray(weights, float)), width).mean(0)
    path = warping_path(-matrix)
    first = np.searchsorted(path[:, 0], np.arange(weights.shape[1]))
    return path[first, 1]
