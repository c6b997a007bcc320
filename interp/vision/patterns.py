"""Attention patterns of an image tower, a few images at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.vision.images import PatchGrid, batches_of, patch_grid, vision_sites

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

Patterns = dict["Site", Float[Tensor, "image head query key"]]


def image_patterns(model: Model, pixels: Tensor, batch_size: int = 16) -> Iterator[Patterns]:
    """Yield the patterns of all layers of the image tower, for a few images at a time."""
    sites = vision_sites(model)
    for inputs in batches_of(model, pixels, size=batch_size):
        cache = model.capture(inputs, ("pattern",), stack=sites[0].stack)
        yield {site: cache["pattern", site.layer].double() for site in sites}


def grid_of(model: Model, pixels: Tensor) -> PatchGrid:
    """Return the grid of the images' tokens, from a run of the first image."""
    first = vision_sites(model)[0]
    [inputs] = batches_of(model, pixels[:1])
    z = model.capture(inputs, ("z",), stack=first.stack, layers=first.layer)["z", first.layer]
    return patch_grid(model, z.shape[2])


def class_rows(
    patterns: Patterns, grid: PatchGrid
) -> dict[Site, Float[Tensor, "image head patch"]]:
    """Return the attention of the class token on the patches; without one, the mean of all rows."""
    return {
        site: (p[:, :, 0] if grid.class_token else p.mean(2))[..., grid.prefix :]
        for site, p in patterns.items()
    }


def joined_heads(parts: list[Float[Tensor, "image head"]]) -> Float[Tensor, "head image"]:
    """Join values of images that ran one after another."""
    return torch.cat(parts).T.cpu()
