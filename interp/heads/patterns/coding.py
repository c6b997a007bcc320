"""Weights as short integers: the code of a weight is its square root on an even grid.

Many weights of a row of n weights are near 1 / n. On an even grid of 256 steps these would be 0
from n = 512; on the square root they keep two digits.
"""

from __future__ import annotations

import base64
import zlib

import numpy as np
from jaxtyping import Float, Int

from interp.core.errors import OptionError

SLACK = 0.02  # the largest excess over 1 of the sum of half-precision weights


def checked(weights: np.ndarray, what: str) -> Float[np.ndarray, "..."]:
    """Return weights as float32 in 0 to 1."""
    array = np.asarray(weights, dtype=np.float32)
    if not np.isfinite(array).all():
        raise OptionError(f"{what} holds NaN or infinity; it must hold weights from 0 to 1")
    low, high = float(array.min(initial=0.0)), float(array.max(initial=0.0))
    if low < -SLACK or high > 1 + SLACK:
        raise OptionError(
            f"{what} goes from {low:.3g} to {high:.3g}; give weights from 0 to 1, after the softmax"
        )
    return np.clip(array, 0.0, 1.0)


def quantised(weights: Float[np.ndarray, "..."], bits: int) -> Int[np.ndarray, "..."]:
    """Return integers of 8 or 16 bits: the rounded square root of each weight, scaled."""
    top = 2**bits - 1
    return np.rint(np.sqrt(weights) * top).astype("<u1" if bits == 8 else "<u2")


def weights_of(coded: Int[np.ndarray, "..."], bits: int) -> Float[np.ndarray, "..."]:
    """Return the weights that a page reads from codes."""
    return np.square(coded / (2**bits - 1))


def resolution(bits: int) -> float:
    """Return the largest error of a weight that is read back: half a step of its root."""
    half = 0.5 / (2**bits - 1)
    return 2 * half + half * half


def triangular(weights: Float[np.ndarray, "query_pos key_pos"]) -> bool:
    """Return True if no query attends to a later key, so that the lower triangle suffices."""
    n, keys = weights.shape
    return n == keys and n > 1 and not np.triu(weights, 1).any()


def compressed(values: np.ndarray, *, triangle: bool) -> bytes:
    """Compress codes by row, a triangle up to its diagonal, with low and high bytes apart.

    The low bytes of 16-bit codes are noise and the high bytes are not: apart they compress better.
    """
    flat = values[np.tril_indices(len(values))] if triangle else values.reshape(-1)
    planes = flat.view(np.uint8).reshape(-1, values.dtype.itemsize).T
    return zlib.compress(np.ascontiguousarray(planes).tobytes(), 6)


def as_letters(content: bytes) -> str:
    """Encode bytes as letters that a page can hold."""
    return base64.b64encode(content).decode()


def coarser(
    weights: Float[np.ndarray, "query_pos key_pos"], block: int
) -> Float[np.ndarray, "query_block key_block"]:
    """Average over the queries of a block the weight on the keys of a block."""
    queries, keys = weights.shape
    starts = np.arange(0, queries, block)
    rows = np.add.reduceat(weights, starts, 0)
    rows = np.add.reduceat(rows, np.arange(0, keys, block), 1)
    return rows / np.minimum(block, queries - starts)[:, None]
