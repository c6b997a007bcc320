"""Agreement of maps with masks: Attention-IoU and the pointing game."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from interp.core.errors import OptionError
from interp.model.model_argument import takes_model
from interp.vision.images import checked_masks, image_batch, image_provenance, vision_sites
from interp.vision.maps import map_of_images
from interp.vision.patterns import class_rows, grid_of, image_patterns
from interp.vision.result import ImageScores, head_places, paired_columns

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray
METRICS = ("attention_iou", "pointing_game")


def attention_iou(
    first: Float[Array, "*n cell"], second: Float[Array, "*n cell"]
) -> Float[Array, "*n"]:
    """Compute the Attention-IoU of two maps: 1 if they are proportional, 0 if they are disjoint.

    Both are divided by their sums, and the score is sum(p q) / sum(((p + q) / 2)^2). A uniform map
    on n cells and one that is uniform on m of them have 4m / (n + 3m).

    Reference: Serianni et al. 2025, "Attention IoU: Examining Biases in CelebA using Attention
    Maps" (arXiv 2503.19846).
    """
    p, q = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if p.shape[-1] != q.shape[-1]:
        raise OptionError(
            f"maps of {p.shape[-1]} and {q.shape[-1]} cells; give both on the same grid"
        )
    for x in (p, q):
        if (x < 0).any() or not (x.sum(-1) > 0).all():
            raise OptionError("Attention-IoU needs maps without negative entries, not all zero")
    p, q = (x / x.sum(-1, keepdims=True) for x in (p, q))
    return (p * q).sum(-1) / np.square((p + q) / 2).sum(-1)


def pointing_game(
    maps: Float[Array, "*n cell"], shares: Float[Array, "*n cell"]
) -> Float[Array, "*n"]:
    """Return the chance that a pixel of the largest cell lies in the mask: 1 hit, 0 miss.

    Published maps have one value per pixel. Here a map has one per patch, all pixels of the largest
    patch are equally its maximum, and the expected hit is the share of the patch in the mask. Cells
    that tie share the hit equally.

    Reference: Zhang et al. 2016, "Top-down Neural Attention by Excitation Backprop" (arXiv
    1608.00507).
    """
    largest = maps == maps.max(-1, keepdims=True)
    return (shares * largest).sum(-1) / largest.sum(-1)


@takes_model
def map_agreement(
    model: Model,
    images: Any,
    masks: Any,
    *,
    methods: tuple[str, ...] = ("class_attention", "rollout"),
    labels: Any = None,
    batch_size: int = 16,
    seed: int = 0,
) -> ImageScores:
    """Score how well the attention of each head, and maps of the whole model, agree with masks.

    A head's map is the attention of its class token on the patches (the mean over queries without
    a class token). The null is the same map against the mask of another image, so that looking
    where objects usually are does not count; `uniform` is the score of a uniform map. Negative
    parts of signed attributions count as 0.

    Args:
        model: a vision transformer.
        images: images; see `interp.vision.image_batch`.
        masks: True at the pixels of the object, one mask per image.
        methods: maps of the whole model; see `interp.vision.image_maps`.
        labels: class of each image, for maps that explain a class.
        batch_size: images that run together.
        seed: seed of the masks of other images.

    Returns:
        A row per head or map, and metric; `p` and `p_holm` test it against its null, paired over
        images.

    Reference: Serianni et al. 2025 (arXiv 2503.19846); Zhang et al. 2016 (arXiv 1608.00507).

    Raises:
        OptionError: the masks have another size or are empty, or a method is unknown.

    Unit: Attention-IoU, or share of hits.

    Cost: One forward pass, and that of the methods.

    Null: masks of other images.

    Not for: showing that a head uses the object; ablate it.
    """
    pixels = image_batch(model, images)
    regions = checked_masks(model, masks, len(pixels))
    grid, sites = grid_of(model, pixels), vision_sites(model)
    shares = grid.shares(regions)
    other = shares[_derangement(len(shares), np.random.default_rng(seed))]
    rows = [
        torch.cat([x.movedim(1, 0) for x in class_rows(p, grid).values()]).cpu().numpy()
        for p in image_patterns(model, pixels, batch_size)
    ]
    maps = [*np.concatenate(rows, 1)]
    for method in methods:
        values = map_of_images(model, pixels, method, labels, batch_size=batch_size)
        maps.append(values.reshape(len(pixels), -1))
    every = np.stack(maps).clip(min=0)
    scores, null, uniform = [], [], []
    for score in (_iou, pointing_game):
        scores.append(score(every, np.broadcast_to(shares, every.shape)))
        null.append(score(every, np.broadcast_to(other, every.shape)))
        uniform.append(float(score(np.ones_like(shares), shares).mean()))
    places, stack = head_places(sites), sites[0].stack
    places = (*places, *((stack, -1, -1) for _ in methods))
    n = len(places)
    metrics = tuple(m for m in METRICS for _ in range(n))
    labels_of = (*(f"L{x}H{h}" for _, x, h in places[: len(places) - len(methods)]), *methods)
    return ImageScores(
        labels_of * 2,
        places * 2,
        metrics,
        ("Attention-IoU",) * n + ("share of hits",) * n,
        np.concatenate(scores),
        np.concatenate(null).mean(1),
        extra={"uniform": tuple(u for u in uniform for _ in range(n))}
        | paired_columns(metrics, np.concatenate(scores), np.concatenate(null)),
        provenance=image_provenance(
            model,
            pixels,
            "map_agreement",
            seed=seed,
            methods=list(methods),
            null="masks of other images",
        ),
    )


def _iou(maps: Float[Array, "row image cell"], shares: Array) -> Float[Array, "row image"]:
    # a map without a positive entry, as of an attribution that is negative everywhere, says nothing
    empty = maps.sum(-1) <= 0
    overlaps = attention_iou(np.where(empty[..., None], 1.0, maps), shares)
    return np.where(empty, np.nan, overlaps)


def _derangement(n: int, rng: np.random.Generator) -> Array:
    """Return a random order in which no image keeps its mask, for two images or more."""
    order = rng.permutation(n)
    partners = np.empty(n, dtype=int)
    partners[order] = np.roll(order, 1)
    return partners
