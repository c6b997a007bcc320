"""Classes that ask: a decoder with one learned query per class, and its map for each class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.model.content import versions
from interp.vision.maps import require_image
from interp.vision.overlay import map_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go


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


def query_maps(
    decoder: nn.Module,
    tokens: Float[Tensor, "image token width"],
    grid: tuple[int, int],
    classes: Sequence[str],
    images: Any,
) -> ResultRows:
    """Return the map of every class over each image: where its query looks, per head.

    Read row c of the map of the true class to see its evidence, and that of another class to see
    what is missing: logit_c = w . z_c, so that a class speaks only through its own query.

    Args:
        decoder: a module like `ClassQueries`: tokens in; logits, and attention per head, out.
        tokens: features of the patches, row by row.
        grid: rows and columns of patches.
        classes: names of the classes.
        images: the images, for the figure.

    Returns:
        One row per image, class, head and patch: image, class, query_head, row, column, score
        (attention, which sums to 1 over the patches) and null. Facts: maps, `[image, head, class,
        row, column]`; logits, `[image, class]`; classes; pixels. `plot(item, of=CLASS)` draws where
        each head of one class looks over an image; without `of` the class with the largest logit.

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
    maps = maps.reshape(*maps.shape[:3], *grid)
    image, head, of, row, column = np.indices(maps.shape).reshape(5, -1)
    columns = {
        "image": image,
        "class": np.array([*classes], dtype=object)[of],
        "query_head": head,
        "row": row,
        "column": column,
        "metric": "query_attention",
        "score": maps.ravel(),
        "unit": "attention mass",
        "null": 1 / (grid[0] * grid[1]),
    }
    provenance = {
        "model": type(decoder).__name__,
        "prompts": f"{len(pixels)} images",
        "seed": None,
        "null": "uniform attention",
        "made_by": "interp.vision.query_maps",
        "versions": versions(),
    }
    facts = {"maps": maps, "logits": logits.double().cpu().numpy(), "classes": tuple(classes)}
    return ResultRows(
        "QueryMaps",
        columns,
        ("image", "class", "query_head", "row", "column"),
        provenance,
        facts | {"pixels": pixels},
        why_no_per_prompt="every row belongs to one image",
    )


def query_maps_summary(found: ResultRows) -> str:
    """Return the numbers of images, classes and heads."""
    images, heads, classes = found.maps.shape[:3]
    return f"QueryMaps({images} images, {classes} classes, {heads} heads)"


def query_maps_figure(found: ResultRows, item: int = 0, *, of: str | None = None) -> go.Figure:
    """Draw where each head of one class looks, over the image."""
    require_image(found, item)
    if of is not None and of not in found.classes:
        raise OptionError(f"there is no class {of!r}; known: {', '.join(found.classes)}")
    c = int(found.logits[item].argmax()) if of is None else found.classes.index(of)
    heads = {f"{found.classes[c]}, head {h}": x[c] for h, x in enumerate(found.maps[item])}
    return map_figure(found.pixels[item], heads)


present("QueryMaps", summary=query_maps_summary, plot=query_maps_figure)
