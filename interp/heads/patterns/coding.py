"""Weights as short whole numbers: the code of a weight is its square root on an even grid.

A row of n weights that sum to 1 has many that are near 1 / n. On an even grid of 256 steps those
would be 0 from n = 512 on; on the square root they keep two digits.
"""

from __future__ import annotations

import base64
import zlib

import numpy as np
from jaxtyping import Float, Int

from interp.core.errors import OptionError

SLACK = 0.02  # weights of half-precision models sum to this much beyond 1


def checked(weights: np.ndarray, what: str) -> Float[np.ndarray, "..."]:
    """Weights as float32 in 0 to 1.

    Raises:
        OptionError: they are not numbers from 0 to 1.
    """
    found = np.asarray(weights, dtype=np.float32)
    if not np.isfinite(found).all():
        raise OptionError(f"{what} holds NaN or infinity; it must hold weights from 0 to 1")
    low, high = float(found.min(initial=0.0)), float(found.max(initial=0.0))
    if low < -SLACK or high > 1 + SLACK:
        raise OptionError(
            f"{what} goes from {low:.3g} to {high:.3g}; give weights from 0 to 1, after the softmax"
        )
    return np.clip(found, 0.0, 1.0)


def quantised(weights: Float[np.ndarray, "..."], bits: int) -> Int[np.ndarray, "..."]:
    """Whole numbers of 8 or 16 bits: the rounded square root of each weight, times the largest."""
    top = 2**bits - 1
    return np.rint(np.sqrt(weights) * top).astype("<u1" if bits == 8 else "<u2")


def weights_of(coded: Int[np.ndarray, "..."], bits: int) -> Float[np.ndarray, "..."]:
    """What a page reads from codes."""
    return np.square(coded / (2**bits - 1))


def resolution(bits: int) -> float:
    """How far at most a weight read back lies from the weight: its root is off by half a step."""
    half = 0.5 / (2**bits - 1)
    return 2 * half + half * half


def triangular(weights: Float[np.ndarray, "query_pos key_pos"]) -> bool:
    """Whether no query attends to a later key, so that half of the square says everything."""
    n, keys = weights.shape
    return n == keys and n > 1 and not np.triu(weights, 1).any()


def compressed(values: np.ndarray, *, triangle: bool) -> bytes:
    """Compressed: row by row, a triangle's rows up to the diagonal, bytes of one place together.

    The low bytes of 16-bit codes are noise and the high ones are not: apart they compress better.
    """
    flat = values[np.tril_indices(len(values))] if triangle else values.reshape(-1)
    planes = flat.view(np.uint8).reshape(-1, values.dtype.itemsize).T
    return zlib.compress(np.ascontiguousarray(planes).tobytes(), 6)


def unpacked(
    content: bytes, kind: str, shape: tuple[int, ...], *, triangle: bool
) -> Int[np.ndarray, "..."]:
    """The values that `packed` was given."""
    size = np.dtype(kind).itemsize
    planes = np.frombuffer(zlib.decompress(content), np.uint8).reshape(size, -1)
    flat = np.ascontiguousarray(planes.T).view(kind).reshape(-1)
    if not triangle:
        return flat.reshape(shape)
    whole = np.zeros(shape, kind)
    whole[np.tril_indices(shape[0])] = flat
    return whole


def as_letters(content: bytes) -> str:
    """Bytes as letters that a page can hold."""
    return base64.b64encode(content).decode()


def coarser(
    weights: Float[np.ndarray, "query_pos key_pos"], block: int
) -> Float[np.ndarray, "query_block key_block"]:
    """Mean over a block's queries of the weight on a block's keys; rows keep their sum."""
    queries, keys = weights.shape
    starts = np.arange(0, queries, block)
    rows = np.add.reduceat(weights, starts, 0)
    rows = np.add.reduceat(rows, np.arange(0, keys, block), 1)
    return rows / np.minimum(block, queries - starts)[:, None]
