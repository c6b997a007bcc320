"""Maps over an image: attention of the class token, rollout, relevance, and other attributions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.presenter import present
from interp.core.registry import ATTRIBUTION_METHODS
from interp.core.result_rows import ResultRows
from interp.draw.parts import ALL_EQUAL, FoundPart, plain_value, result_part
from interp.model.model_argument import takes_model
from interp.vision.example import ImageExample
from interp.vision.images import checked_labels, image_batch, image_provenance, vision_sites
from interp.vision.overlay import map_figure
from interp.vision.patterns import class_rows, grid_of, image_patterns
from interp.vision.pooling_patterns import pooling_patterns

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.model.model import Model

Array = np.ndarray
ENSEMBLE = "class_attention"
POOLING = "pooling"


@takes_model
def image_maps(
    model: Model,
    images: Any,
    methods: tuple[str, ...] | list[str] = (ENSEMBLE, "rollout"),
    *,
    labels: Any = None,
    batch_size: int = 16,
) -> ResultRows:
    """Map what a vision transformer attends to, or what explains a class, over each image.

    "class_attention" is the attention of the class token, averaged over heads and layers (of all
    queries in a model without one): the importance of tokens as an ensemble over layers. "pooling"
    is the attention of SigLIP's learned query, averaged over its heads. A head such as L2H1 gives
    its own attention. Every attribution method of `interp list methods` that needs
    patterns or their gradients can be named, such as rollout and chefer; their scores of class
    token and registers are not drawn.

    Args:
        model: a vision transformer.
        images: images; see `interp.vision.image_batch`.
        methods: names of methods or heads.
        labels: class to explain for each image; the model's own choice by default.
        batch_size: images that run together.

    Returns:
        One row per image, method and patch; see `map_rows`.

    Reference: Abnar and Zuidema 2020 (rollout); Chefer et al. 2021 (relevance); Caron et al. 2021,
    "Emerging Properties in Self-Supervised Vision Transformers" (maps of class attention).

    Raises:
        UnknownName: there is no such method.
        OptionError: a method needs embeddings of tokens, or the model has no classes to explain.

    Unit: that of the method.

    Null: none; `map_agreement` compares maps with masks beside a null.

    Not for: proof that a region matters; rollout ignores values and MLPs.

    Cost: One forward pass for maps of attention; attribution methods as their own table says.
    """
    pixels = image_batch(model, images)
    names = (methods,) if isinstance(methods, str) else tuple(methods)
    if not names:
        raise OptionError("no methods given; name at least one, such as rollout")
    maps = [map_of_images(model, pixels, m, labels, batch_size=batch_size) for m in names]
    units = [
        "attention mass" if _reads_attention(m) else ATTRIBUTION_METHODS.parse(m).method.unit
        for m in names
    ]
    about = image_provenance(model, pixels, "image_maps", methods=list(names), null="none")
    shown = pixels.float().cpu().numpy()
    return map_rows(names, np.stack(maps), shown, units, about)


def map_rows(
    methods: Sequence[str],
    maps: Float[Array, "method image row column"],
    pixels: Float[Array, "image channel row column"],
    units: Sequence[str],
    made: Mapping[str, Any],
) -> ResultRows:
    """Return a row per image, method and patch, with the images."""
    method, image, row, column = np.indices(maps.shape).reshape(4, -1)
    columns = {
        "image": image,
        "metric": np.array(methods, dtype=object)[method],
        "row": row,
        "column": column,
        "score": maps.ravel(),
        "unit": np.array(units, dtype=object)[method],
    }
    facts = {"methods": tuple(methods), "method_units": tuple(units), "maps": maps}
    return ResultRows(
        "ImageMaps",
        columns,
        ("image", "metric", "row", "column"),
        made,
        facts | {"pixels": pixels},
        why_no_per_prompt="every row belongs to one image",
    )


def map_of_images(
    model: Model, pixels: Tensor, method: str, labels: Any = None, *, batch_size: int = 16
) -> Float[Array, "image row column"]:
    """Compute one map per image by one method; see `image_maps`."""
    grid = grid_of(model, pixels)
    shape = len(pixels), grid.rows, grid.columns
    if method == POOLING:
        pooled = pooling_patterns(model, pixels, batch_size)[0]
        return pooled.mean(1)[:, grid.prefix :].cpu().numpy().reshape(shape)
    if _reads_attention(method):
        maps = []
        for patterns in image_patterns(model, pixels, batch_size):
            rows = class_rows(patterns, grid)
            if method == ENSEMBLE:
                maps.append(torch.stack([x.mean(1) for x in rows.values()]).mean(0))
                continue
            head = Head.parse(method)
            mine = [x for s, x in rows.items() if s.layer == head.layer]
            if not mine or head.head >= mine[0].shape[1]:
                sites = vision_sites(model)
                raise OptionError(
                    f"{model.name} has no head {method}; it has layers 0 to {sites[-1].layer} of "
                    f"{sites[0].n_heads} heads"
                )
            maps.append(mine[0][:, head.head])
        return torch.cat(maps).cpu().numpy().reshape(shape)
    declared = ATTRIBUTION_METHODS.parse(method)
    classes = None if labels is None else checked_labels(model, labels, len(pixels))
    scores = []
    for i, image in enumerate(pixels):
        example = ImageExample(model, image, None if classes is None else f"class:{classes[i]}")
        scores.append(np.asarray(declared.of(example).scores)[grid.prefix :])
    return np.stack(scores).reshape(shape)


def _reads_attention(name: str) -> bool:
    """Return True for the ensemble, pooling and a head, which need no target."""
    return name in (ENSEMBLE, POOLING) or re.fullmatch(r"L\d+H\d+", name) is not None


def image_maps_summary(found: ResultRows) -> str:
    """Return the methods and the numbers of images and patches."""
    images, rows, columns = found.maps.shape[1:]
    return f"ImageMaps({', '.join(found.methods)}: {images} images, {rows} x {columns} patches)"


def image_maps_figure(found: ResultRows, item: int = 0) -> go.Figure:
    """Draw the maps of one image over it, one panel per method."""
    require_image(found, item)
    maps = dict(zip(found.methods, found.maps[:, item], strict=True))
    return map_figure(found.pixels[item], maps)


def require_image(found: ResultRows, item: int) -> None:
    """Raise OptionError unless a result has an image of this index."""
    if not 0 <= item < len(found.pixels):
        raise OptionError(f"there is no image {item}; there are {len(found.pixels)}, from 0")


IMAGES, SIDE = 4, 96  # shown of the images of a result, and pixels of each side


def maps_part(found: ResultRows) -> FoundPart:
    """Return maps over the first images."""
    from interp.vision.overlay import reduced_image

    images = [
        {
            "pixels": plain_value(np.round(reduced_image(pixels, SIDE), 3)),
            "maps": {
                name: plain_value(maps[at])
                for name, maps in zip(found.methods, found.maps, strict=True)
            },
        }
        for at, pixels in enumerate(found.pixels[:IMAGES])
    ]
    units = ", ".join(
        f"{name} ({unit})" for name, unit in zip(found.methods, found.method_units, strict=True)
    )
    text = f"{found}: {units}; each map on its own colour scale. A map says where a model looks, "
    text += "not what it uses."
    figure = {"draw": "maps", "images": images}
    return result_part(found, "maps", "Maps over images", text, figure=figure, drop=ALL_EQUAL)


present("ImageMaps", summary=image_maps_summary, plot=image_maps_figure, part=maps_part)
