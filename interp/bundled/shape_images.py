"""Generated images of one patterned shape each, with masks and a coloured patch in a corner.

The bundled models `shapes` and `shapes-spurious` were trained on them. Importing this module does
not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.core.errors import OptionError

PATTERNS = ("rows", "columns", "checks", "plain")
"""Classes, in the order of their labels: what fills the shape."""
SIZE, PATCH = 24, 4
"""Width of an image and of a patch, in pixels."""
CUES = ((1.0, -1.0, -1.0), (-1.0, 1.0, -1.0), (-1.0, -1.0, 1.0), (1.0, 1.0, -1.0))
"""Colour of the corner patch that belongs to each class."""
_NOISE = 0.5

Cue = Literal["aligned", "conflicting", "random", "none"]


@dataclass(frozen=True, eq=False)
class ShapeImages:
    """Images with what is known about them.

    Args:
        pixels: colours from about -1 to 1.
        labels: index of the shape's pattern in `PATTERNS`.
        masks: True at the pixels of the shape.
        cues: class whose colour the corner patch has; -1 without a patch.
    """

    pixels: Float[np.ndarray, "image 3 row column"]
    labels: Int[np.ndarray, " image"]
    masks: Bool[np.ndarray, "image row column"]
    cues: Int[np.ndarray, " image"]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def corner(self) -> Bool[np.ndarray, "row column"]:
        """True at the pixels of the corner patch."""
        pixels = np.zeros((SIZE, SIZE), dtype=bool)
        pixels[:PATCH, :PATCH] = True
        return pixels

    def part(self, which: np.ndarray | slice) -> ShapeImages:
        """Return some of the images."""
        return ShapeImages(
            self.pixels[which], self.labels[which], self.masks[which], self.cues[which]
        )


def shape_images(
    seed: int, number: int, *, cue: Cue = "random", aligned: float | None = None
) -> ShapeImages:
    """Draw images of a square or a disc with rows, columns, checks or no pattern, on noise.

    The classes have equal numbers. Form, position, size, colour and the phase of the pattern are
    random. The shape never touches the patch in the top left corner, whose colour is the cue.
    """
    if cue not in ("aligned", "conflicting", "random", "none"):
        raise OptionError(f"cue {cue!r} is unknown; known: aligned, conflicting, random, none")
    if aligned is not None and not 0 <= aligned <= 1:
        raise OptionError(f"aligned={aligned} is not a share; give a number from 0 to 1")
    if number < 1:
        raise OptionError(f"number={number}; draw at least one image")
    rng = np.random.default_rng([seed, number])
    labels = rng.permutation(np.arange(number) % len(PATTERNS))
    other = (labels + rng.integers(1, len(PATTERNS), number)) % len(PATTERNS)
    cues = {
        "aligned": labels,
        "conflicting": other,
        "random": rng.integers(0, len(PATTERNS), number),
        "none": np.full(number, -1),
    }[cue]
    if aligned is not None:
        cues = np.where(rng.random(number) < aligned, labels, other)
    pixels = rng.normal(0.0, _NOISE, (number, 3, SIZE, SIZE))
    masks = np.stack([_mask(rng) for _ in labels])
    colours = rng.uniform(-1.0, 1.0, (number, 3))
    # a colour near grey would hide the shape in the noise
    colours[np.arange(number), rng.integers(0, 3, number)] = rng.choice([-1.0, 1.0], number)
    bright = np.stack([_pattern(PATTERNS[label], rng) for label in labels])
    filled = colours[:, :, None, None] * bright[:, None]
    pixels = np.where(masks[:, None], filled + 0.6 * pixels, pixels)
    return _with_corner(ShapeImages(pixels, labels, masks, cues))


def recoloured(images: ShapeImages, rng: np.random.Generator) -> ShapeImages:
    """Return the same images with a corner patch of a random class's colour."""
    cues = rng.integers(0, len(PATTERNS), len(images))
    return _with_corner(ShapeImages(images.pixels, images.labels, images.masks, cues))


def _with_corner(images: ShapeImages) -> ShapeImages:
    pixels, cues = images.pixels.astype(np.float32), images.cues
    shown = np.flatnonzero(cues >= 0)
    noise = np.random.default_rng([len(images), 7]).normal(
        0.0, 0.6 * _NOISE, (len(shown), 3, PATCH, PATCH)
    )
    pixels[shown, :, :PATCH, :PATCH] = np.array(CUES)[cues[shown]][:, :, None, None] + noise
    return ShapeImages(pixels, images.labels, images.masks, cues)


def _mask(rng: np.random.Generator) -> Bool[np.ndarray, "row column"]:
    half = rng.uniform(4.0, 6.0)
    while True:
        row, column = rng.uniform(half, SIZE - 1 - half, 2)
        if row - half > PATCH or column - half > PATCH:
            break
    y, x = np.mgrid[:SIZE, :SIZE] - np.array([row, column])[:, None, None]
    if rng.random() < 0.5:
        return (np.abs(y) <= half) & (np.abs(x) <= half)
    return y**2 + x**2 <= half**2


def _pattern(pattern: str, rng: np.random.Generator) -> Float[np.ndarray, "row column"]:
    """Return 1 and -1 in stripes of two pixels, a checkerboard of them, or 1 everywhere."""
    y, x = np.mgrid[:SIZE, :SIZE] + rng.integers(0, 4, 2)[:, None, None]
    rows, columns = 1.0 - 2.0 * (y // 2 % 2), 1.0 - 2.0 * (x // 2 % 2)
    one = np.ones((SIZE, SIZE))
    return {"rows": rows, "columns": columns, "checks": rows * columns, "plain": one}[pattern]
