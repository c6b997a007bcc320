"""Maps over an image: attention of the class token, rollout, relevance, and other attributions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.registry import ATTRIBUTION_METHODS
from interp.core.result import Result
from interp.model.model_argument import takes_model
from interp.vision.example import ImageExample
from interp.vision.images import checked_labels, image_batch, image_provenance, vision_sites
from interp.vision.overlay import map_figure
from interp.vision.patterns import class_rows, grid_of, image_patterns
from interp.vision.pooling_patterns import pooling_patterns

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from interp.model.model import Model

Array = np.ndarray
ENSEMBLE = "class_attention"
POOLING = "pooling"


@dataclass(frozen=True, eq=False, repr=False)
class ImageMaps(Result):
    """One map of patches per image and method, with the images.

    Rows are an image, a method and a patch.

    Args:
        methods: names of the methods.
        maps: the scores.
        pixels: the images, for the figure.
        units: unit of each method.
        provenance: model, images and options.
    """

    methods: tuple[str, ...]
    maps: Float[Array, "method image row column"] = field(repr=False)
    pixels: Float[Array, "image channel row column"] = field(repr=False)
    units: tuple[str, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    per_prompt = None
    why_no_per_prompt = "every row belongs to one image"
    _units = ("image", "metric", "row", "column")

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        index = np.indices(self.maps.shape).reshape(4, -1)
        return pd.DataFrame({
            "image": index[1], "metric": np.array(self.methods, dtype=object)[index[0]],
            "row": index[2], "column": index[3], "score": self.maps.ravel(),
            "unit": np.array(self.units, dtype=object)[index[0]],
        })  # fmt: skip

    def plot(self, item: int = 0) -> go.Figure:  # type: ignore[override]
        """Draw the maps of one image over it, one panel per method.

        Args:
            item: index of the image.

        Raises:
            OptionError: there is no such image.
        """
        if not 0 <= item < len(self.pixels):
            raise OptionError(f"there is no image {item}; there are {len(self.pixels)}, from 0")
        return map_figure(
            self.pixels[item], dict(zip(self.methods, self.maps[:, item], strict=True))
        )

    def __repr__(self) -> str:
        rows, columns = self.maps.shape[2:]
        return (
            f"ImageMaps({', '.join(self.methods)}: {len(self.pixels)} images, {rows} x {columns} "
            "patches)"
        )


@takes_model
def image_maps(
    model: Model,
    images: Any,
    methods: tuple[str, ...] | list[str] = (ENSEMBLE, "rollout"),
    *,
    labels: Any = None,
    batch_size: int = 16,
) -> ImageMaps:
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
    found = [map_of_images(model, pixels, m, labels, batch_size=batch_size) for m in names]
    units = [
        "attention mass" if _reads_attention(m) else ATTRIBUTION_METHODS.parse(m).method.unit
        for m in names
    ]
    about = image_provenance(model, pixels, "image_maps", methods=list(names), null="none")
    shown = pixels.float().cpu().numpy()
    return ImageMaps(names, np.stack(found), shown, tuple(units), about)


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
        found = []
        for patterns in image_patterns(model, pixels, batch_size):
            rows = class_rows(patterns, grid)
            if method == ENSEMBLE:
                found.append(torch.stack([x.mean(1) for x in rows.values()]).mean(0))
                continue
            head = Head.parse(method)
            mine = [x for s, x in rows.items() if s.layer == head.layer]
            if not mine or head.head >= mine[0].shape[1]:
                sites = vision_sites(model)
                raise OptionError(
                    f"{model.name} has no head {method}; it has layers 0 to {sites[-1].layer} of "
                    f"{sites[0].n_heads} heads"
                )
            found.append(mine[0][:, head.head])
        return torch.cat(found).cpu().numpy().reshape(shape)
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
