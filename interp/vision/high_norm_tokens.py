"""Patches of very high norm (registers that a model makes for itself), and who attends to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import OptionError
from interp.model.model_argument import takes_model
from interp.vision.images import batches_of, image_batch, image_provenance, vision_sites
from interp.vision.patterns import grid_of
from interp.vision.result import ImageScores, head_places

if TYPE_CHECKING:
    from interp.model.model import Model

NAMES = ("on_high_norm_patches", "on_class_token", "on_registers")


@takes_model
def high_norm_tokens(
    model: Model,
    images: Any,
    *,
    cut: float | None = None,
    times: float = 4.0,
    batch_size: int = 16,
) -> ImageScores:
    """Find patches whose stream is far longer than the others', and which heads attend to them.

    A patch has a high norm in a layer if the norm of its stream after that layer exceeds `cut`,
    or, without one, `times` the median over the patches of the image. Rows of layers give the share
    of such patches and the norms of class token and registers in medians of the patches. Rows of
    heads give the attention of all queries on the patches whose norm is high in the stream that
    the layer reads, on the class token, and on registers. The null of a head's attention on some
    tokens is what as many of the other patches get on average.

    Args:
        model: a vision transformer.
        images: images; see `interp.vision.image_batch`.
        cut: norm above which a patch counts, such as the 150 of the paper for DINOv2-g.
        times: multiple of the median norm above which a patch counts, without a cut.
        batch_size: images that run together.

    Reference: Darcet et al. 2024, "Vision Transformers Need Registers" (arXiv 2309.16588).

    Raises:
        OptionError: cut or times is not positive.
        PromptError: the images do not fit the model, or its tokens are not a grid of patches.

    Unit: share of patches, medians, or attention mass.

    Cost: One forward pass.

    Null: attention on as many other patches.

    Not for: deciding what such a token holds.
    """
    if (cut is not None and not cut > 0) or not times > 0:
        raise OptionError(f"cut={cut}, times={times}; give positive numbers")
    pixels = image_batch(model, images)
    grid, sites = grid_of(model, pixels), vision_sites(model)
    first = grid.prefix
    rows: list[list[Tensor]] = [[], [], [], []]
    for inputs in batches_of(model, pixels, size=batch_size):
        names = ("resid_pre", "resid_post", "pattern")
        cache = model.capture(inputs, names, stack=sites[0].stack)
        streams = [cache["resid_pre", sites[0].layer]]
        streams += [cache["resid_post", s.layer] for s in sites]
        norms = [x.double().norm(dim=-1).cpu() for x in streams]
        high = [high_norm_patches(x[:, first:], cut, times) for x in norms]
        rows[0].append(torch.stack([x.double().mean(1) for x in high[1:]]))
        middle = [x[:, first:].median(1).values for x in norms[1:]]
        rows[1].append(
            torch.stack(
                [
                    x[:, :first].max(1).values / m if first else torch.full_like(m, torch.nan)
                    for x, m in zip(norms[1:], middle, strict=True)
                ]
            )
        )
        pairs = [
            _masses(cache["pattern", s.layer].double().cpu(), h, first, grid.class_token)
            for s, h in zip(sites, high[:-1], strict=True)
        ]
        rows[2].append(torch.cat([x for x, _ in pairs], 1))
        rows[3].append(torch.cat([x for _, x in pairs], 1))
    layer_rows = [torch.cat(x, 1).numpy() for x in rows[:2]]
    masses, nulls = (torch.cat(x, 2).numpy() for x in rows[2:])
    places = head_places(sites)
    layers = tuple((s.stack, s.layer, -1) for s in sites)
    labels = [f"layer {s.layer}" for s in sites]
    shown = [i for i in range(3) if i == 0 or (grid.class_token, first > grid.class_token)[i - 1]]
    with np.errstate(invalid="ignore"):
        null = [np.nanmean(nulls[i], 1) for i in shown]
    return ImageScores(
        (*labels, *labels, *(f"L{x}H{h}" for _ in shown for _, x, h in places)),
        (*layers, *layers, *(place for _ in shown for place in places)),
        (
            *("high_norm_share",) * len(sites),
            *("prefix_norm",) * len(sites),
            *(NAMES[i] for i in shown for _ in places),
        ),
        (
            *("share of patches",) * len(sites),
            *("median norms of patches",) * len(sites),
            *("attention mass",) * len(shown) * len(places),
        ),
        np.concatenate([*layer_rows, *(masses[i] for i in shown)]),
        np.concatenate([np.full(2 * len(sites), np.nan), *null]),
        notes={"cut": cut if cut is not None else f"{times:g} medians"},
        provenance=image_provenance(
            model,
            pixels,
            "high_norm_tokens",
            cut=cut,
            times=times,
            null="attention on as many other patches",
        ),
    )


def high_norm_patches(
    norms: Float[Tensor, "image patch"], cut: float | None, times: float
) -> Bool[Tensor, "image patch"]:
    """Mark patches whose norm exceeds a cut, or without one a multiple of the image's median."""
    limit = norms.median(1, keepdim=True).values * times if cut is None else cut
    return norms > limit


def _masses(
    pattern: Float[Tensor, "image head query key"],
    high: Bool[Tensor, "image patch"],
    first: int,
    class_token: bool,
) -> tuple[Float[Tensor, "3 head image"], Float[Tensor, "3 head image"]]:
    """Return the mean attention on each kind of token, and that on as many other patches."""
    column = pattern.mean(2)  # what each key gets from the average query
    patches, start = column[..., first:], int(class_token)
    others = (patches * ~high[:, None]).sum(-1) / (~high).sum(1).clamp_min(1)[:, None]
    kinds = [
        (patches * high[:, None]).sum(-1),
        column[..., :start].sum(-1),
        column[..., start:first].sum(-1),
    ]
    sizes = [high.sum(1)[:, None], start, first - start]
    return (
        torch.stack([x.T for x in kinds]),
        torch.stack([(others * n).T for n in sizes]),
    )
