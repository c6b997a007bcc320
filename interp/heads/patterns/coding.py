"""Encoding of attention weights as short integers: square roots on an even grid.

A row of n weights that sum to 1 has many that are near 1 / n. On an even grid of 256 steps those
would be 0 from n = 512 on; with square roots they keep two digits.
"""

from __future__ import annotations

import base64
import zlib

import numpy as np
from jaxtyping import Float, Int

from interp.core.errors import OptionError

SLACK = 0.02  # weights of half-precision models may exceed a sum of 1 by this much


def checked(weights: np.ndarray, what: str) -> Float[np.ndarray, "..."]:
    """Return weights as float32 in 0 to 1.

    Raises:
        OptionError: the weights are not numbers from 0 to 1.
    """
    found = np.asarray(weights, dtype=np.float32)
    if not np.isfinite(found).all():
        raise OptionError(f"{what} contains NaN or infinity; give weights from 0 to 1")
    low, high = float(found.min(initial=0.0)), float(found.max(initial=0.0))
    if low < -SLACK or high > 1 + SLACK:
        raise OptionError(
            f"{what} ranges from {low:.3g} to {high:.3g}; give weights from 0 to 1, after the "
            f"softmax"
        )
    return np.clip(found, 0.0, 1.0)


def quantised(weights: Float[np.ndarray, "..."], bits: int) -> Int[np.ndarray, "..."]:
    """Encode weights as integers of 8 or 16 bits: the rounded, scaled square root of each."""
    top = 2**bits - 1
    return np.rint(np.sqrt(weights) * top).astype("<u1" if bits == 8 else "<u2")


def weights_of(coded: Int[np.ndarray, "..."], bits: int) -> Float[np.ndarray, "..."]:
    """Return the weights that a page decodes."""
    return np.square(coded / (2**bits - 1))


def resolution(bits: int) -> float:
    """Return the largest decoding error: the root is off by half a step."""
    half = 0.5 / (2**bits - 1)
    return 2 * half + half * half


def triangular(weights: Float[np.ndarray, "query_pos key_pos"]) -> bool:
    """Return True if no query attends to a later key, so that half of the square is enough."""
    n, keys = weights.shape
    return n == keys and n > 1 and not np.triu(weights, 1).any()


def compressed(values: np.ndarray, *, triangle: bool) -> bytes:
    """Compress row by row, a triangle's rows up to the diagonal, with byte planes separated.

    The low bytes of 16-bit codes are noise and the high ones are not, so they compress better
    separately.
    """
    flat = values[np.tril_indices(len(values))] if triangle else values.reshape(-1)
    planes = flat.view(np.uint8).reshape(-1, values.dtype.itemsize).T
    return zlib.compress(np.ascontiguousarray(planes).tobytes(), 6)


def unpacked(
    content: bytes, kind: str, shape: tuple[int, ...], *, triangle: bool
) -> Int[np.ndarray, "..."]:
    """Return the values that `packed` encoded."""
    size = np.dtype(kind).itemsize
    planes = np.frombuffer(zlib.decompress(content), np.uint8).reshape(size, -1)
    flat = np.ascontiguousarray(planes.T).view(kind).reshape(-1)
    if not triangle:
        return flat.reshape(shape)
    whole = np.zeros(shape, kind)
    whole[np.tril_indices(shape[0])] = flat
    return whole


def as_letters(content: bytes) -> str:
    """Encode bytes as text for a page."""
    return base64.b64encode(content).decode()


def coarser(
    weights: Float[np.ndarray, "query_pos key_pos"], block: int
) -> Float[np.ndarray, "query_block key_block"]:
    """Average the weight on a block's keys over a block's queries; rows keep their sum."""
    queries, keys = weights.shape
    starts = np.arange(0, queries, block)
    rows = np.add.reduceat(weights, starts, 0)
    rows = np.add.reduceat(rows, np.arange(0, keys, block), 1)
    return rows / np.minimum(block, queries - starts)[:, None]
