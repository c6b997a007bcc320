"""The class token: what heads carry to it and from it, with and without that attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError, UnreadableAttention
from interp.model.model_argument import takes_model
from interp.model.pattern_edits import set_pattern
from interp.vision.direct_effects import output_directions, target_of
from interp.vision.images import batches_of, image_batch, image_provenance, vision_sites
from interp.vision.parts import image_parts
from interp.vision.patterns import grid_of, image_patterns, joined_heads
from interp.vision.readout import image_output
from interp.vision.result import ImageScores, head_places

if TYPE_CHECKING:
    from interp.model.model import Model

WITHOUT = ("without_class_row", "without_class_column")


@takes_model
def class_token_effects(
    model: Model,
    images: Any,
    labels: Any = None,
    *,
    texts: Float[np.ndarray, "text d"] | None = None,
    by: str = "head",
    batch_size: int = 64,
    seed: int = 0,
) -> ImageScores:
    """Measure what heads carry to the class token and from it, by attention and by removal.

    `class_row` is the attention of the class token on the patches; `class_column` that of the
    patches on the class token. `without_class_row` is the fall of the target when the class token
    attends to itself alone in a head, so that it reads no patch there; `without_class_column` the
    fall when the patches do not see the class token and scale the rest of their attention to 1. The
    target is the logit of the class (or cosine with the text) minus the mean of the others.
    The null of the attention is uniform attention; that of the removals is the fall when a patch,
    drawn for each head, takes the place of the class token: it attends to itself alone, or no other
    token sees it.

    Args:
        model: a vision transformer with a class token.
        images: images; see `interp.vision.image_batch`.
        labels: class of each image, or index of its text; by default the model's own choice.
        texts: text embeddings, for a model without classes.
        by: "head", or "layer" to remove the attention of all heads of a layer together.
        batch_size: images that run together.
        seed: seed of the patches of the null.

    Reference: removal of class attention by layer as in Touvron et al. 2021, "Going deeper with
    Image Transformers" (arXiv 2103.17239), where only the last layers read patches into the class
    token.

    Raises:
        UnreadableAttention: the model has no class token.
        OptionError: `by` is unknown, or labels or texts do not fit.

    Unit: attention mass, logit or cosine.

    Cost: Four forward passes per head or layer.

    Null: uniform attention, or the removal of a random patch's row or column.

    Not for: models that pool all tokens, where patches reach the output without the class token.
    """
    if by not in ("head", "layer"):
        raise OptionError(f"by={by!r} is unknown; known: head, layer")
    pixels = image_batch(model, images)
    grid, sites = grid_of(model, pixels), vision_sites(model)
    if not grid.class_token:
        raise UnreadableAttention(
            f"{model.name} has no class token ({grid.tokens} tokens, all patches or registers); "
            "its attention on patches is in patch_distance and image_maps"
        )
    parts = image_parts(model, pixels, batch_size=batch_size)
    directions, _, unit = output_directions(parts, texts)
    targets = target_of(model, parts, labels, directions)
    towards = directions[targets]
    number = len(directions)
    towards = (number * towards - directions.sum(0)) / (number - 1)

    def value(edits: list[Any]) -> Float[np.ndarray, " image"]:
        outputs = []
        with model.edited(*edits):
            for inputs in batches_of(model, pixels, size=batch_size):
                outputs.append(image_output(model, inputs)[0].double().cpu().numpy())
        output = np.concatenate(outputs)
        output = output / (np.linalg.norm(output, axis=1, keepdims=True) if unit == "cosine" else 1)
        return (output * towards).sum(1)

    base = value([])
    places, labels_of = _units(sites, by)
    falls, null = [], []
    rng = np.random.default_rng(seed)
    for change in (own_token_only, without_column):
        for stack, _, heads in places:
            patch = int(rng.integers(grid.prefix, grid.tokens))
            for token, into in ((0, falls), (patch, null)):
                edit = set_pattern(heads, partial(change, token=token), stack=stack)
                into.append(base - value([edit]))
    masses = _masses(model, pixels, grid.prefix, by)
    n = len(places)
    uniform = np.repeat((grid.rows * grid.columns / grid.tokens, 1 / grid.tokens), n)
    names = ("class_row", "class_column", *WITHOUT)
    at = tuple((s, x, int(h[0].split("H")[1]) if by == "head" else -1) for s, x, h in places)
    return ImageScores(
        labels_of * 4,
        at * 4,
        tuple(name for name in names for _ in range(n)),
        ("attention mass",) * 2 * n + (unit,) * 2 * n,
        np.concatenate([*masses, np.array(falls)]),
        np.concatenate([uniform, np.mean(null, 1)]),
        provenance=image_provenance(
            model,
            pixels,
            "class_token_effects",
            seed=seed,
            by=by,
            null="uniform attention, or the removal of a random patch",
        ),
    )


def own_token_only(pattern: Float[Tensor, "image head query key"], token: int = 0) -> Tensor:
    """Return a pattern in which one token attends to itself alone."""
    pattern[:, :, token] = 0
    pattern[:, :, token, token] = 1
    return pattern


def without_column(pattern: Float[Tensor, "image head query key"], token: int = 0) -> Tensor:
    """Return a pattern in which no other token sees one token; their rows sum to 1."""
    others = torch.arange(pattern.shape[2], device=pattern.device) != token
    remaining = pattern * others
    scaled = remaining / remaining.sum(-1, keepdim=True).clamp_min(1e-12)
    return torch.where(others[:, None], scaled, pattern)


def _units(sites: list[Any], by: str) -> tuple[list[tuple[str, int, list[str]]], tuple[str, ...]]:
    if by == "layer":
        layers = [(s.stack, s.layer, [f"L{s.layer}H{h}" for h in range(s.n_heads)]) for s in sites]
        return layers, tuple(f"layer {x}" for _, x, _ in layers)
    single = [(stack, x, [f"L{x}H{h}"]) for stack, x, h in head_places(sites)]
    return single, tuple(heads[0] for _, _, heads in single)


def _masses(
    model: Model, pixels: Tensor, first: int, by: str
) -> list[Float[np.ndarray, "unit image"]]:
    reduce: Callable[[Tensor], Tensor] = (
        (lambda x: x) if by == "head" else (lambda x: x.mean(1, keepdim=True))
    )
    row, column = [], []
    for patterns in image_patterns(model, pixels):
        row.append(torch.cat([reduce(p[:, :, 0, first:].sum(-1)) for p in patterns.values()], 1))
        column.append(
            torch.cat([reduce(p[:, :, first:, 0].mean(-1)) for p in patterns.values()], 1)
        )
    return [joined_heads(row).numpy(), joined_heads(column).numpy()]
