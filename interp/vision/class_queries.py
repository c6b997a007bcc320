"""Classes that ask: a decoder with one learned query per class, and its map for each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.errors import OptionError
from interp.core.result import Result
from interp.model.content import versions
from interp.vision.overlay import map_figure

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Array = np.ndarray


class ClassQueries(nn.Module):
    """Decoder in which every class searches an image with its own query (INTR).

    One layer of cross attention from a learned query per class to the tokens of an image, with a
    residual and a norm, and one vector w shared by all classes: logit_c = w . z_c. It is a small
    reference of the published decoder, which is a full DETR decoder over features of a backbone.

    Args:
        classes: number of classes.
        width: width of queries and tokens.
        heads: number of attention heads.

    Reference: Paul et al. 2024, "A Simple Interpretable Transformer for Fine-Grained Image
    Classification and Analysis" (arXiv 2311.04157); code Imageomics/INTR.
    """

    def __init__(self, classes: int, width: int, heads: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(classes, width) / width**0.5)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.w = nn.Linear(width, 1, bias=False)

    def forward(
        self, tokens: Float[Tensor, "image token width"]
    ) -> tuple[Float[Tensor, "image class"], Float[Tensor, "image head class token"]]:
        """Return the logits of the classes, and the attention of every class and head."""
        asked = self.queries.expand(len(tokens), -1, -1)
        read, pattern = self.attention(asked, tokens, tokens, average_attn_weights=False)
        return self.w(self.norm(asked + read))[..., 0], pattern


@dataclass(frozen=True, eq=False, repr=False)
class QueryMaps(Result):
    """Attention of class queries on the patches of images, per head.

    Rows are an image, a class, a head and a patch. Maps of a row sum to 1.

    Args:
        maps: attention of each class and head.
        logits: logit of each class.
        classes: names of the classes.
        pixels: the images, for the figure.
        provenance: images and options.
    """

    maps: Float[Array, "image head class row column"] = field(repr=False)
    logits: Float[Array, "image class"] = field(repr=False)
    classes: tuple[str, ...]
    pixels: Float[Array, "image channel row column"] = field(repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    per_prompt = None
    why_no_per_prompt = "every row belongs to one image"
    _units = ("image", "class", "query_head", "row", "column")

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        index = np.indices(self.maps.shape).reshape(5, -1)
        return pd.DataFrame({
            "image": index[0], "class": np.array(self.classes, dtype=object)[index[2]],
            "query_head": index[1], "row": index[3], "column": index[4],
            "metric": "query_attention", "score": self.maps.ravel(), "unit": "attention mass",
            "null": 1 / (self.maps.shape[3] * self.maps.shape[4]),
        })  # fmt: skip

    def plot(self, item: int = 0, *, of: str | None = None) -> go.Figure:  # type: ignore[override]
        """Draw where each head of one class looks, over the image.

        Args:
            item: index of the image.
            of: class; the one with the largest logit by default.

        Raises:
            OptionError: there is no such image or class.
        """
        if not 0 <= item < len(self.pixels):
            raise OptionError(f"there is no image {item}; there are {len(self.pixels)}, from 0")
        if of is not None and of not in self.classes:
            raise OptionError(f"there is no class {of!r}; known: {', '.join(self.classes)}")
        c = int(self.logits[item].argmax()) if of is None else self.classes.index(of)
        heads = {f"{self.classes[c]}, head {h}": x[c] for h, x in enumerate(self.maps[item])}
        return map_figure(self.pixels[item], heads)

    def __repr__(self) -> str:
        images, heads = self.maps.shape[:2]
        return f"QueryMaps({images} images, {len(self.classes)} classes, {heads} heads)"


def query_maps(
    decoder: nn.Module,
    tokens: Float[Tensor, "image token width"],
    grid: tuple[int, int],
    classes: Sequence[str],
    images: Any,
) -> QueryMaps:
    """Return the map of every class over each image: where its query looks, per head.

    Read row c of the map of the true class to see its evidence, and that of another class to see
    what is missing: logit_c = w . z_c, so that a class speaks only through its own query.

    Args:
        decoder: a module like `ClassQueries`: tokens in; logits, and attention per head, out.
        tokens: features of the patches, row by row.
        grid: rows and columns of patches.
        classes: names of the classes.
        images: the images, for the figure.

    Reference: Paul et al. 2024 (arXiv 2311.04157).

    Raises:
        OptionError: tokens do not fit the grid, or the decoder has another number of classes.

    Unit: attention mass.

    Null: uniform attention, 1 / patches.

    Not for: models whose classes share one class token; use `image_maps`.

    Cost: One forward pass.
    """
    if tokens.dim() != 3 or tokens.shape[1] != grid[0] * grid[1]:
        raise OptionError(
            f"tokens of shape {tuple(tokens.shape)} for a grid of {grid[0]} x {grid[1]} patches; "
            "give [image, patch, width], without class token"
        )
    pixels = torch.as_tensor(getattr(images, "pixels", images)).float().cpu().numpy()
    if len(pixels) != len(tokens):
        raise OptionError(f"{len(pixels)} images for tokens of {len(tokens)}; give one per row")
    with torch.no_grad():
        logits, pattern = decoder(tokens)
    if logits.shape[1] != len(classes):
        raise OptionError(f"{len(classes)} names of classes for {logits.shape[1]} queries")
    maps = pattern.double().cpu().numpy()
    return QueryMaps(
        maps.reshape(*maps.shape[:3], *grid), logits.double().cpu().numpy(), tuple(classes), pixels,
        {"model": type(decoder).__name__, "prompts": f"{len(pixels)} images", "seed": None,
         "null": "uniform attention", "made_by": "interp.vision.query_maps",
         "versions": versions()},
    )  # fmt: skip
