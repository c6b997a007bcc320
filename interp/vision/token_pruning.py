"""Pruning of image tokens by class attention or given scores, beside random tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import OptionError, UnreadableAttention
from interp.model.model_argument import takes_model
from interp.model.pattern_edits import set_pattern
from interp.vision.direct_effects import output_directions, target_of
from interp.vision.images import (
    batches_of,
    checked_masks,
    image_batch,
    image_provenance,
    vision_sites,
)
from interp.vision.parts import image_parts
from interp.vision.patterns import class_rows, grid_of, image_patterns
from interp.vision.readout import image_output, image_readout
from interp.vision.result import ImageScores

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray


@takes_model
def prune_image_tokens(
    model: Model,
    images: Any,
    labels: Any = None,
    *,
    keep: float | Sequence[float] = (0.75, 0.5, 0.25),
    layers: Sequence[int] | None = None,
    scores: Float[Array, "image patch"] | None = None,
    masks: Any = None,
    texts: Float[Array, "text d"] | None = None,
    n_random: int = 5,
    batch_size: int = 64,
    seed: int = 0,
) -> ImageScores:
    """Keep the patches to which the class token attends most, and measure loss and accuracy.

    The importance of a patch is the attention of the class token on it in the unchanged model,
    averaged over heads and the chosen layers. No token sees a dropped patch in any layer, and the
    rest of its attention is scaled to 1, which is as if the patch were no token. For every share
    that is kept there are rows for the change of the loss (cross-entropy of the image's class; of
    the cosines with texts times 100 where the model has no classes), for the accuracy, and with
    masks for the share of the object that lies in kept patches. The null is the mean of as many
    random patches; the accuracy without pruning is in the notes.

    Args:
        model: a vision transformer whose output reads the class token alone.
        images: images; see `interp.vision.image_batch`.
        labels: class of each image, or index of its text; by default the model's own choice.
        keep: share of patches that are kept, or several.
        layers: layers whose attention is averaged; all by default.
        scores: importance of each patch, by which patches are kept in place of attention.
        masks: masks of the object.
        texts: text embeddings, for a model without classes.
        n_random: random sets of the null, for each image.
        batch_size: images that run together.
        seed: seed of the random sets.

    Reference: "[CLS] Token Tells Everything Needed for Training-free Efficient MLLMs" (importance
    of image tokens by class attention, as an ensemble over layers; there before a language model).

    Raises:
        UnreadableAttention: the model has no class token, or its output reads other tokens too.
        OptionError: a share, a layer, scores, labels, texts or masks do not fit.

    Unit: nats, or share.

    Cost: Two forward passes, and one per share and random set.

    Null: as many random patches.

    Not for: saved time; dropped patches are hidden, not left out of the computation.
    """
    shares = [float(x) for x in ([keep] if isinstance(keep, (int, float)) else keep)]
    if not shares or not all(0 < x < 1 for x in shares):
        raise OptionError(f"keep={keep}; give shares of patches between 0 and 1")
    if n_random < 1:
        raise OptionError(f"n_random={n_random}; draw at least one random set")
    pixels = image_batch(model, images)
    grid, readout = grid_of(model, pixels), image_readout(model)
    if not grid.class_token or not readout.only_class_token:
        raise UnreadableAttention(
            f"{model.name} reads its output from: {readout.pooled_by}; hidden patches would still "
            "be read there, so only models that read the class token alone can be pruned so"
        )
    importance = class_importance(model, pixels, layers) if scores is None else np.asarray(scores)
    if importance.shape != (len(pixels), grid.rows * grid.columns):
        raise OptionError(
            f"scores of shape {importance.shape}; give one per image and patch,"
            f" ({len(pixels)}, {grid.rows * grid.columns})"
        )
    parts = image_parts(model, pixels, batch_size=batch_size)
    directions, _, unit = output_directions(parts, texts)
    classes = target_of(model, parts, labels, directions)
    number = len(pixels)

    def logits(output: Float[Array, "image out"]) -> Float[Array, "image class"]:
        if unit == "logit":
            return output
        return 100 * output / np.linalg.norm(output, axis=1, keepdims=True) @ directions.T

    plain = logits(parts.output)
    inside = None
    if masks is not None:
        object_share = grid.shares(checked_masks(model, masks, number))
        inside = object_share / object_share.sum(1, keepdims=True)
    rng = np.random.default_rng(seed)
    rows: dict[str, list[Array]] = {"loss_change": [], "pruned_accuracy": [], "object_kept": []}
    null: dict[str, list[float]] = {name: [] for name in rows}
    base = _loss(plain, classes)
    for share in shares:
        size = max(1, round(share * importance.shape[1]))
        sets = [_largest(importance, size, rng)]
        sets += [_largest(np.zeros(importance.shape), size, rng) for _ in range(n_random)]
        values: dict[str, list[Array]] = {name: [] for name in rows}
        for marks in sets:
            out = logits(_outputs(model, pixels, marks, grid.prefix, batch_size))
            values["loss_change"].append(_loss(out, classes) - base)
            values["pruned_accuracy"].append((out.argmax(1) == classes).astype(float))
            if inside is not None:
                values["object_kept"].append((inside * marks).sum(1))
        for name, measured in values.items():
            if measured:
                rows[name].append(measured[0])
                null[name].append(float(np.mean(measured[1:])))
    names = [name for name, measured in rows.items() if measured]
    units = {
        "loss_change": "nats",
        "pruned_accuracy": "share of images",
        "object_kept": "share of the object",
    }
    where = vision_sites(model)[0].stack
    return ImageScores(
        tuple(f"keep {x:g}" for x in shares) * len(names),
        ((where, -1, -1),) * len(shares) * len(names),
        tuple(n for n in names for _ in shares),
        tuple(units[n] for n in names for _ in shares),
        np.concatenate([np.stack(rows[n]) for n in names]),
        np.concatenate([null[n] for n in names]),
        notes={"accuracy without pruning": float((plain.argmax(1) == classes).mean())},
        provenance=image_provenance(
            model,
            pixels,
            "prune_image_tokens",
            seed=seed,
            keep=shares,
            draws=n_random,
            layers="all" if layers is None else list(layers),
            null="as many random patches",
            importance="class attention" if scores is None else "given scores",
        ),
    )


def class_importance(
    model: Model, pixels: Tensor, layers: Sequence[int] | None = None
) -> Float[Array, "image patch"]:
    """Return the attention of the class token on the patches, averaged over heads and layers."""
    known = [s.layer for s in vision_sites(model)]
    chosen = known if layers is None else list(layers)
    if not chosen or not set(chosen) <= set(known):
        raise OptionError(f"layers={layers}; give some of {', '.join(map(str, known))}")
    grid, importance = grid_of(model, pixels), []
    for patterns in image_patterns(model, pixels):
        rows = class_rows(patterns, grid)
        mine = [x.mean(1) for s, x in rows.items() if s.layer in chosen]
        importance.append(torch.stack(mine).mean(0))
    return torch.cat(importance).cpu().numpy()


def hide_patches(
    pattern: Float[Tensor, "image head query key"], kept: Bool[Tensor, "image patch"], first: int
) -> Float[Tensor, "image head query key"]:
    """Return a pattern in which no token sees the dropped patches; its rows sum to 1."""
    seen = torch.ones(len(pattern), pattern.shape[-1], dtype=torch.bool, device=pattern.device)
    seen[:, first:] = kept.to(pattern.device)
    new = pattern * seen[:, None, None]
    return new / new.sum(-1, keepdim=True).clamp_min(1e-30)


def _outputs(
    model: Model, pixels: Tensor, kept: Bool[Array, "image patch"], first: int, size: int
) -> Float[Array, "image out"]:
    """Return the outputs of the model while the dropped patches are hidden."""
    sites, outputs, start = vision_sites(model), [], 0
    heads = [f"L{s.layer}H{h}" for s in sites for h in range(s.n_heads)]
    for inputs in batches_of(model, pixels, size=size):
        stop = start + len(inputs["pixel_values"])
        hide = partial(hide_patches, kept=torch.from_numpy(kept[start:stop]), first=first)
        with model.edited(set_pattern(heads, hide, stack=sites[0].stack)):
            outputs.append(image_output(model, inputs)[0].double().cpu().numpy())
        start = stop
    return np.concatenate(outputs)


def _largest(
    scores: Float[Array, "image patch"], size: int, rng: np.random.Generator
) -> Bool[Array, "image patch"]:
    """Mark the patches of the largest scores; equal scores are ordered at random."""
    # rounded, since equal attention differs in its last digits
    order = np.lexsort((rng.random(scores.shape), -scores.round(9)))[:, :size]
    marks = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(marks, order, True, axis=1)
    return marks


def _loss(logits: Float[Array, "image class"], classes: Array) -> Float[Array, " image"]:
    top = logits.max(1, keepdims=True)
    norm = top[:, 0] + np.log(np.exp(logits - top).sum(1))
    return norm - logits[np.arange(len(logits)), classes]
