"""Rules that need more than their own sequence: the grid of an image, or a source to read."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from training.forms.rule import Chosen, Heads, Projected, Rule, SeenBlock, Stream


class GridRule(Rule):
    """Softmax between all patches of an image, whose rows and columns the rule knows.

    Attributes:
        inner: whether each patch holds inner tokens.
    """

    causal = False
    inner: ClassVar[bool] = False

    def within(self, x: Stream, context: tuple[int, int]) -> Projected:
        """Return queries, keys and values of an image with this grid of patches."""
        given = self.prepare(x)
        given.grid = context
        return given


class InsidePatches(GridRule):
    """Softmax between the inner tokens of a patch, which stand patch by patch."""

    side = 2  # inner tokens along each side of a patch
    each = side**2

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep tokens of the row's patch."""
        return rows[:, None] // self.each == given.keys // self.each


class SourceRule(Rule):
    """Softmax of a target's positions over the tokens of a source."""

    causal = False

    def within(self, x: Stream, context: tuple[Stream, Bool[Tensor, "batch key_pos"]]) -> Projected:
        """Return queries of the target, keys and values of the source, and which keys are real."""
        source, real = context
        q, k, v = self.query(x), self.key(source), self.value(source)
        given = Projected(x, self.split(q), self.split(k), self.split(v))
        given.more["real"] = real
        return given

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Hide padding of the source."""
        return given.more["real"][:, None, None].expand(-1, 1, len(rows), -1)


def placed(at: Chosen, given: Projected) -> tuple[Chosen, Chosen]:
    """Return the row and the column of patches on the grid."""
    return at // given.grid[1], at % given.grid[1]


def convolved_on_grid(
    x: Float[Tensor, "*batch pos channel"],
    kernel: Float[Tensor, "channel row column"],
    grid: tuple[int, int],
) -> Float[Tensor, "*batch pos channel"]:
    """Convolve each channel over the grid of an image, with zeros around it."""
    image = x.flatten(0, -3).mT.unflatten(-1, grid)
    pad = tuple(size // 2 for size in kernel.shape[1:])
    found = F.conv2d(image, kernel[:, None], padding=pad, groups=len(kernel))
    return found.flatten(2).mT.reshape(x.shape)


def regions(given: Projected, at: Chosen, size: int) -> Chosen:
    """Return the region of each patch: squares of `size` by `size` patches, numbered by rows."""
    row, column = placed(at, given)
    return row // size * -(-given.grid[1] // size) + column // size


def means_of_regions(x: Heads, given: Projected, size: int) -> Heads:
    """Return the mean over the patches of each region."""
    region = F.one_hot(regions(given, given.keys, size)).to(x.dtype)
    return torch.einsum("nr,bhnd->bhrd", region, x) / region.sum(0)[:, None]
