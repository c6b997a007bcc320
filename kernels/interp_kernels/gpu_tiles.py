"""Tile sizes and launch options of the Triton kernels, by head width and dtype."""

from __future__ import annotations

from typing import NamedTuple

# Columns of values per program when they are not the model's own.
EXTRA = 64


class Tiles(NamedTuple):
    """Queries and keys of a tile, warps of a program, stages of its loads."""

    queries: int
    keys: int
    warps: int
    stages: int


def tiles_for(width: int, itemsize: int, block: int | None = None) -> Tiles:
    """A fixed choice, from what fits on chip; not tuned on a device.

    Args:
        width: the wider of a query and what a program holds of a value, padded.
        block: at most so many queries, rounded up to what a tile can be.
    """
    if itemsize == 2:
        found = Tiles(128, 64, 4, 3) if width <= 64 else Tiles(128, 64, 8, 2)
        found = found if width <= 128 else Tiles(64, 32, 4, 2)
    else:  # exact float32 products hold their operands in registers
        found = Tiles(64, 32, 4, 2) if width <= 64 else Tiles(32, 32, 4, 2)
    if block is None:
        return found
    return found._replace(queries=min(found.queries, padded(block)))


def padded(size: int) -> int:
    """The next power of two, at least 16: what a product of tiles takes."""
    return max(16, 1 << (size - 1).bit_length())
