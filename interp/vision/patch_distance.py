"""Distance in patches between where a head stands and where it attends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.model.model_argument import takes_model
from interp.vision.images import image_batch, image_provenance, vision_sites
from interp.vision.patterns import grid_of, image_patterns, joined_heads
from interp.vision.result import ImageScores, head_scores

if TYPE_CHECKING:
    from interp.model.model import Model


@takes_model
def patch_distance(model: Model, images: Any, *, batch_size: int = 16) -> ImageScores:
    """Measure the mean distance between the patch of a query and the patches it attends to.

    Distances are Euclidean, in patches, between the centres of patches in the image. Attention to
    the class token and to registers is left out and the rest scaled to 1; queries that attend to no
    patch are left out. The null is the same mean under uniform attention.

    Args:
        model: a vision transformer.
        images: images; see `interp.vision.image_batch`.
        batch_size: images that run together.

    Reference: Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words" (arXiv 2010.11929), figure
    7; Raghu et al. 2021, "Do Vision Transformers See Like Convolutional Neural Networks?".

    Raises:
        PromptError: the images do not fit the model, or its tokens are not a grid of patches.

    Unit: patches.

    Cost: One forward pass.

    Null: mean distance under uniform attention.

    Not for: showing that distant patches are used; a head that rests on a sink attends far.
    """
    pixels = image_batch(model, images)
    grid, sites = grid_of(model, pixels), vision_sites(model)
    centres = torch.from_numpy(grid.centres())
    apart = torch.cdist(centres, centres)
    distances = []
    for patterns in image_patterns(model, pixels, batch_size):
        rows = []
        for p in patterns.values():
            weights = p[:, :, grid.prefix :, grid.prefix :].cpu()
            total = weights.sum(-1)
            mean = (weights * apart).sum(-1) / total.clamp_min(1e-12)
            rows.append(torch.where(total > 1e-12, mean, torch.nan).nanmean(-1))
        distances.append(torch.cat(rows, 1))
    return head_scores(
        sites,
        {("patch_distance", "patches"): joined_heads(distances).numpy()},
        image_provenance(model, pixels, "patch_distance", null="uniform attention"),
        null={"patch_distance": float(np.mean(apart.numpy()))},
        notes={"grid": f"{grid.rows} x {grid.columns} patches"},
    )
