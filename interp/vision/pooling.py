"""The pooling attention of SigLIP: one learned query that reads all patches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.core.result_rows import ResultRows
from interp.model.model_argument import takes_model
from interp.vision.images import image_batch, image_provenance, vision_config
from interp.vision.maps import map_rows
from interp.vision.patterns import grid_of
from interp.vision.pooling_patterns import pooling_of, pooling_patterns

if TYPE_CHECKING:
    from interp.model.model import Model


@takes_model
def pooling_attention(model: Model, images: Any, *, batch_size: int = 16) -> ResultRows:
    """Read where each head of a pooling attention with one learned query looks.

    The pattern of each head times its values and output matrix, summed over heads with the bias,
    is compared with what the attention gives in the model's own run, and y + MLP(norm(y)) of that
    with the pooled vector. The largest difference is in the options of the provenance.

    Args:
        model: a model whose image tower pools its patches with a learned query, such as SigLIP.
        images: images; see `interp.vision.image_batch`.
        batch_size: images that run together.

    Returns:
        One map per head ("pooling H0", ...) and image; see `map_rows`.

    Reference: Zhai et al. 2023, "Sigmoid Loss for Language Image Pre-Training" (arXiv 2303.15343);
    the pooling head is that of Lee et al. 2019, "Set Transformer".

    Raises:
        UnreadableAttention: the model has no such attention, or the identities do not hold.
        PromptError: the images do not fit the model.

    Unit: attention mass.

    Null: none; uniform attention is 1 / number of patches.

    Not for: showing that a patch is used; its values may be small where attention is large.

    Cost: One forward pass.
    """
    vision_config(model)
    name, pixels = pooling_of(model), image_batch(model, images)
    grid = grid_of(model, pixels)
    patterns, apart = pooling_patterns(model, pixels, batch_size)
    maps = patterns.movedim(1, 0)[..., grid.prefix :]
    heads = tuple(f"pooling H{h}" for h in range(len(maps)))
    shape = len(heads), len(pixels), grid.rows, grid.columns
    return map_rows(
        heads,
        maps.reshape(shape).cpu().numpy(),
        pixels.float().cpu().numpy(),
        ("attention mass",) * len(heads),
        image_provenance(
            model, pixels, "pooling_attention", module=name, largest_difference=apart, null="none"
        ),
    )
