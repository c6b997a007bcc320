"""Direct effect of every head on a class logit, or on the similarity of image and text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.core.errors import OptionError
from interp.model.model_argument import takes_model
from interp.vision.images import checked_labels, image_batch, image_provenance
from interp.vision.parts import ImageParts, image_parts
from interp.vision.result import ImageScores, paired_columns

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray


@takes_model
def image_direct_effects(
    model: Model,
    images: Any,
    labels: Any = None,
    *,
    texts: Float[Array, "text d"] | None = None,
    against: str = "others",
    batch_size: int = 64,
    seed: int = 0,
) -> ImageScores:
    """Measure what each head adds directly to a class logit, or to the cosine of image and text.

    For a classifier the target is the logit of each image's class, minus the mean of the other
    classes. For an image tower it is the cosine of the image embedding with a text embedding,
    minus the mean over the other texts. The parts (heads, MLPs, embedding, biases) sum to the
    target; what makes the output nonlinear in the stream is held at its value on the image, the
    norm of the embedding included. Where an attention with one learned query pools the patches
    (SigLIP), its heads, its MLP and its bias split the same target once more: these rows have the
    metric `direct_pooling_effect`. The null is the same effect on a class (or text) drawn at random
    from the others. Effects through later layers are not included.

    Args:
        model: a classifier of images, or a tower with an image embedding.
        images: images; see `interp.vision.image_batch`.
        labels: class of each image, or index of its text; by default the model's own choice.
        texts: text embeddings, for a model without classes.
        against: "others" subtracts the mean of the other classes or texts; "none" does not.
        batch_size: images that run together.
        seed: seed of the null's classes.

    Returns:
        A row per part; `p` and `p_holm` test it against its null, paired over images.

    Reference: Gandelsman et al. 2024, "Interpreting CLIP's Image Representation via Text-Based
    Decomposition" (arXiv 2310.05916).

    Raises:
        PromptError: the images do not fit the model.
        OptionError: a label is not a class, texts are missing or have another width, or `against`
            is unknown.
        UnreadableAttention: the output cannot be read from the last stream.

    Unit: logit, or cosine.

    Cost: One forward pass (two for a model of two towers).

    Null: direct effect on a random other class.

    Not for: heads that act through other heads or MLPs, which add nothing here.
    """
    pixels = image_batch(model, images)
    parts = image_parts(model, pixels, batch_size=batch_size)
    directions, scale, unit = output_directions(parts, texts)
    number = len(directions)
    if number < 2:
        raise OptionError("a direct effect needs two classes or texts, so that one has a null")
    targets = target_of(model, parts, labels, directions)
    if against not in ("others", "none"):
        raise OptionError(f"against={against!r} is unknown; known: others, none")
    rng = np.random.default_rng(seed)
    random = (targets + rng.integers(1, number, len(targets))) % number
    every = np.concatenate([parts.heads, parts.others], 1) * scale[:, None, None]
    towards = directions if against == "none" else _against(directions)
    others = tuple(_place(parts, name) for name in parts.names)
    names, places = (*parts.labels, *parts.names), (*parts.places, *others)
    metrics = ("direct_image_effect",) * len(names)
    if parts.pooling is not None:
        every = np.concatenate([every, parts.pooling * scale[:, None, None]], 1)
        stack, layer, _ = parts.pooling_places[0]
        names += (*parts.pooling_labels, "pooling MLP", "pooling bias")
        places += (*parts.pooling_places, *((stack, layer, -1),) * 2)
        metrics += ("direct_pooling_effect",) * (len(names) - len(metrics))
    effects, null = (np.einsum("ipo,io->pi", every, towards[x]) for x in (targets, random))
    return ImageScores(
        names,
        places,
        metrics,
        (unit,) * len(names),
        effects,
        null.mean(1),
        extra=paired_columns(("direct_image_effect",) * len(names), effects, null),
        notes={"readout": parts.readout, "residual": parts.residual},
        provenance=image_provenance(
            model,
            pixels,
            "image_direct_effects",
            seed=seed,
            against=against,
            target="each image's own" if labels is not None else "the model's choice",
            null="direct effect on a random other class or text",
        ),
    )


def output_directions(
    parts: ImageParts, texts: Float[Array, "text d"] | None
) -> tuple[Float[Array, "class out"], Float[Array, " image"], str]:
    """Return directions of the output, the factor of each image, and the unit."""
    width = parts.output.shape[1]
    if parts.kind == "logits":
        if texts is not None:
            raise OptionError("the model has class logits; texts= is for image embeddings")
        return np.eye(width), np.ones(len(parts.output)), "logit"
    if texts is None:
        raise OptionError(
            "the model has an image embedding and no classes; give texts=, embeddings of one text "
            f"per class [text, {width}], such as those of interp.vision.text_embeddings"
        )
    embeddings = np.asarray(texts, dtype=float)
    if embeddings.ndim != 2 or embeddings.shape[1] != width:
        raise OptionError(
            f"text embeddings of shape {embeddings.shape}; the image embedding has {width} "
            f"entries: give [text, {width}]"
        )
    size = np.linalg.norm(embeddings, axis=1, keepdims=True)
    if not (size > 0).all():
        raise OptionError(f"text embedding {int(np.argmin(size))} is zero, so it has no direction")
    return embeddings / size, 1 / np.linalg.norm(parts.output, axis=1), "cosine"


def target_of(
    model: Model, parts: ImageParts, labels: Any, directions: Float[Array, "class out"]
) -> Int[Array, " image"]:
    """Return the class or text of each image: the given one, or the model's choice."""
    number = len(parts.output)
    if labels is None:
        return (parts.output @ directions.T).argmax(1)
    if parts.kind == "logits":
        return checked_labels(model, labels, number)
    targets = np.asarray(labels)
    if targets.shape != (number,) or targets.dtype.kind not in "iu":
        raise OptionError(f"give one index of a text for each of the {number} images")
    if targets.min() < 0 or targets.max() >= len(directions):
        raise OptionError(
            f"there are {len(directions)} texts; a label is outside 0 to {len(directions) - 1}"
        )
    return targets


def _against(directions: Float[Array, "class out"]) -> Float[Array, "class out"]:
    number = len(directions)
    return directions - (directions.sum(0) - directions) / (number - 1)


def _place(parts: ImageParts, name: str) -> tuple[str, int, int]:
    layer = int(name.split()[1]) if name.startswith("MLP") else -1
    return parts.places[0][0], layer, -1
