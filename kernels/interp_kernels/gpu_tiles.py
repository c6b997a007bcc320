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
    """Return a fixed choice of sizes that fit on chip; not tuned on a device.

    Args:
        width: the larger padded width of a query and of the values that a program holds.
        itemsize: bytes of a number.
        block: largest number of queries, rounded up to a valid tile size.
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
    """Round up to a power of two, at least 16, as products of tiles require."""
    return max(16, 1 << (size - 1).bit_length())
