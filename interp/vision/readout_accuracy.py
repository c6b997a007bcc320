"""Each head as an encoder: accuracy of a linear readout of its output, against the full encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from interp.core.errors import OptionError
from interp.core.standard_errors import standard_error
from interp.core.statistics import holm
from interp.core.ties import ordered
from interp.model.model_argument import takes_model
from interp.vision.images import (
    batches_of,
    image_batch,
    image_provenance,
    vision_sites,
)
from interp.vision.patterns import grid_of
from interp.vision.result import ImageScores, head_places

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray
ENCODER = "encoder"
_PENALTY = 1e-2  # of the ridge, relative to the mean variance of the features


@takes_model
def head_readouts(
    model: Model,
    images: Any,
    labels: Any,
    *,
    most: int = 16,
    n_permutations: int = 999,
    seed: int = 0,
    batch_size: int = 64,
) -> ImageScores:
    """Compare a linear readout of each head with one of the full encoder, on held-out images.

    Features are the output of a head (z) at the class token, or its mean over tokens in a model
    without one; those of the encoder are the last stream. A ridge regression to the classes is
    trained on half of the images and judged on the other half. The rows "k heads" join the first k
    heads in order of their accuracy within the training half (two folds); the notes give the
    smallest k whose accuracy is not below the encoder's minus its standard error. The null is the
    mean accuracy after the training labels were shuffled, and `p` the share of shuffles with an
    accuracy as high; `p_holm` is corrected over all rows.

    Args:
        model: a vision transformer.
        images: images; see `interp.vision.image_batch`.
        labels: class of each image, as numbers; it need not be a class of the model.
        most: largest number of joined heads.
        n_permutations: number of shuffles of the training labels; with fewer than 20 times the
            number of rows no `p_holm` can be below 0.05.
        seed: seed of the halves and of the shuffling.
        batch_size: images that run together.

    Reference: linear probes as in Alain and Bengio 2017, "Understanding intermediate layers using
    linear classifier probes" (arXiv 1610.01644), of single heads.

    Raises:
        OptionError: labels do not fit the images, a class has fewer than four images, or there are
            no shuffles.

    Unit: share of images.

    Cost: One forward pass, and a regression per head, shared by the shuffles.

    Null: shuffled training labels.

    Not for: showing that the model uses what a readout finds.
    """
    if n_permutations < 1:
        raise OptionError(
            f"n_permutations={n_permutations}; at least one shuffle is needed as null"
        )
    pixels = image_batch(model, images)
    targets = np.asarray(labels)
    if targets.shape != (len(pixels),) or targets.dtype.kind not in "iu":
        raise OptionError(f"give one whole number as label for each of the {len(pixels)} images")
    classes, index = np.unique(targets, return_inverse=True)
    counts = np.bincount(index)
    if len(classes) < 2 or counts.min() < 4:
        raise OptionError(
            f"the labels have {len(classes)} classes with at least {counts.min()} images; a readout"
            " needs two classes of four images or more"
        )
    heads, encoder = _features(model, pixels, batch_size)
    rng = np.random.default_rng(seed)
    learn = _half(index, rng)
    places = head_places(vision_sites(model))
    names = [f"L{layer}H{head}" for _, layer, head in places]
    ranked = _ranking(heads, index, learn, rng)
    shuffled = np.tile(index, (n_permutations, 1))
    for one in shuffled:
        one[learn] = rng.permutation(index[learn])
    sizes = range(1, min(most, len(names)) + 1)
    joined = [np.concatenate([heads[i] for i in ranked[:k]], 1) for k in sizes]
    every = [*heads, encoder, *joined]
    right = np.stack([_right(x, index, index, learn) for x in every])
    null = np.stack([_right(x, shuffled, index, learn).mean(-1) for x in every])
    at = len(names)
    score, error = right.mean(1), standard_error(right[at])
    enough = [k for k in sizes if score[at + k] >= score[at] - error]
    stack = places[0][0]
    n = len(every)
    p = (1 + (null >= score[:, None] - 1e-12).sum(1)) / (1 + n_permutations)
    return ImageScores(
        (*names, ENCODER, *(f"{k} heads" for k in sizes)),
        (*places, *((stack, -1, -1) for _ in range(n - at))),
        ("readout_accuracy",) * n,
        ("share of images",) * n,
        right,
        null.mean(1),
        extra={"p": tuple(p.tolist()), "p_holm": tuple(holm(p).tolist())},
        notes={
            "heads that reach the encoder": enough[0] if enough else f"more than {len(joined)}",
            "order of heads": " ".join(names[i] for i in ranked[: len(joined)]),
            "single heads that reach it": int((score[:at] >= score[at] - error).sum()),
        },
        provenance=image_provenance(
            model,
            pixels,
            "head_readouts",
            seed=seed,
            most=most,
            n_permutations=n_permutations,
            null="shuffled training labels",
        ),
    )


def _features(
    model: Model, pixels: torch.Tensor, batch_size: int
) -> tuple[list[Float[Array, "image d"]], Float[Array, "image d_model"]]:
    """Return the features of every head and of the encoder."""
    grid, sites = grid_of(model, pixels), vision_sites(model)
    heads, last = [], []
    for inputs in batches_of(model, pixels, size=batch_size):
        cache = model.capture(inputs, ("z", "resid_post"), stack=sites[0].stack)
        z = [cache["z", s.layer].double() for s in sites]
        z = [x[:, :, 0] if grid.class_token else x.mean(2) for x in z]
        heads.append([x[:, h] for x in z for h in range(x.shape[1])])
        stream = cache["resid_post", sites[-1].layer].double()
        last.append(stream[:, 0] if grid.class_token else stream.mean(1))
    joined = [torch.cat(x).cpu().numpy() for x in zip(*heads, strict=True)]
    return joined, torch.cat(last).cpu().numpy()


def _half(index: Int[Array, " image"], rng: np.random.Generator) -> Bool[Array, " image"]:
    """Draw half of the images of every class."""
    learn = np.zeros(len(index), dtype=bool)
    for each in range(index.max() + 1):
        mine = rng.permutation(np.flatnonzero(index == each))
        learn[mine[: len(mine) // 2]] = True
    return learn


def _ranking(
    heads: Sequence[Array], index: Array, learn: Bool[Array, " image"], rng: np.random.Generator
) -> list[int]:
    """Order heads by their accuracy in two folds of the training half."""
    mine = np.flatnonzero(learn)
    first = _half(index[mine], rng)
    scores = [
        np.mean([_right(x[mine], index[mine], index[mine], f).mean() for f in (first, ~first)])
        for x in heads
    ]
    return ordered(scores)


def _right(
    features: Float[Array, "image d"],
    taught: Int[Array, "*draw image"],
    index: Int[Array, " image"],
    learn: Bool[Array, " image"],
) -> Float[Array, "*draw held_out"]:
    """Train a ridge regression on some images; return 1 where it is right on the others."""
    mean, scale = features[learn].mean(0), features[learn].std(0)
    x = (features - mean) / np.where(scale > 1e-12, scale, 1.0)
    gram = x[learn].T @ x[learn]
    gram += _PENALTY * learn.sum() * np.eye(len(gram))
    weights = x[~learn] @ np.linalg.solve(gram, x[learn].T)  # of the images it was trained on
    y = np.eye(index.max() + 1)[taught[..., learn]]
    level = y.mean(-2, keepdims=True)
    return ((weights @ (y - level) + level).argmax(-1) == index[~learn]).astype(float)
