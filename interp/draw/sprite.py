"""PNG pictures: the patterns of all heads as thumbnails, and images."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from jaxtyping import Float, UInt8

LARGEST = 96  # pixels of a thumbnail's side
PIXELS = 2_500_000  # of all thumbnails of a stack


def side(shape: tuple[int, int], n: int) -> int:
    """Return the pixels of a thumbnail's longer side: at most the tokens, fewer for many heads."""
    return max(4, min(*[max(shape), LARGEST], int((PIXELS / max(n, 1)) ** 0.5)))


def shrunk(weights: Float[np.ndarray, "query_pos key_pos"], side: int) -> Float[np.ndarray, "y x"]:
    """Reduce weights to at most side x side pixels, each the largest weight of its cells."""
    for axis in (0, 1):
        size = weights.shape[axis]
        if size > side:
            starts = np.unique(np.arange(side) * size // side)
            weights = np.maximum.reduceat(weights, starts, axis)
    return weights


def bins(weights: Float[np.ndarray, "..."], n: int) -> UInt8[np.ndarray, "..."]:
    """Return the index of n colours, even in the square root, so that 0.01 is visible."""
    return np.rint(np.sqrt(weights) * (n - 1)).astype(np.uint8)


def thumbnails(
    grid: list[list[Float[np.ndarray, "query_pos key_pos"] | None]],
    shape: tuple[int, int],
    colours: list[str],
) -> bytes:
    """Return a PNG of all heads, one row of heads per row of the list; None is empty."""
    count = sum(w is not None for row in grid for w in row)
    small = shrunk(np.zeros(shape, np.float32), side(shape, count)).shape
    cells = np.full((len(grid), len(grid[0]), *small), len(colours), np.uint8)
    for y, row in enumerate(grid):
        for x, weights in enumerate(row):
            if weights is not None:
                cells[y, x] = bins(shrunk(weights, side(shape, count)), len(colours))
    whole = cells.swapaxes(1, 2).reshape(len(grid) * small[0], -1)
    return indexed_png(whole, [*colours, "#ffffff"])


def indexed_png(pixels: UInt8[np.ndarray, "height width"], colours: list[str]) -> bytes:
    """Encode a picture of palette colours (PNG, RFC 2083)."""
    palette = _chunk(b"PLTE", b"".join(bytes.fromhex(colour[1:]) for colour in colours))
    return _png(pixels, 3, palette)


def colour_png(pixels: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """Encode a picture of red, green and blue."""
    return _png(pixels, 2, b"")


def data_url(content: bytes, kind: str = "image/png") -> str:
    """Return a picture as a data URL."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _png(pixels: np.ndarray, kind: int, palette: bytes) -> bytes:
    height, width = pixels.shape[:2]
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))
        + palette
        + _chunk(b"IDAT", zlib.compress(lines, 9))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
