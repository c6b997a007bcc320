"""All measures of a vision model that its images and their labels, masks and texts allow."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.errors import OptionError, UnknownName
from interp.core.registry import ATTRIBUTION_METHODS

if TYPE_CHECKING:
    from interp.core.result import Result
    from interp.model.model import Model
    from interp.vision.own_images import Pictures

ON_REQUEST = ("registers", "pruning")  # few models have long tokens; pruning needs many runs
MEASURES = (
    "direct",
    "distance",
    "tokens",
    "class_token",
    "readouts",
    "agreement",
    "cue",
    "texts",
    *ON_REQUEST,
)


def chosen_measures(only: str | None) -> tuple[str, ...] | None:
    """Return the named measures; None for all that can be computed."""
    if only is None:
        return None
    names = tuple(name.strip().replace("-", "_") for name in only.split(",") if name.strip())
    for name in names:
        if name not in MEASURES:
            raise UnknownName("measure", name, MEASURES)
    if not names:
        raise OptionError(f"--method names no measure; known: {', '.join(MEASURES)}")
    return names


def require_maps(names: Sequence[str]) -> None:
    """Raise if a map is not class_attention, pooling, a head or an attribution method."""
    for name in names:
        if name not in ("class_attention", "pooling") and not re.fullmatch(r"L\d+H\d+", name):
            ATTRIBUTION_METHODS.parse(name)


def maps_to_draw(model: Model, names: Sequence[str]) -> tuple[str, ...]:
    """Return the maps to draw; by default those that the model has.

    A model of two towers has no rollout, since an attribution explains one stack.
    """
    from interp.model.views import layers_view

    alone = len(layers_view(model).stacks) == 1
    return tuple(names) or (("class_attention", "rollout") if alone else ("class_attention",))


def measures_of_images(
    model: Model, pictures: Pictures, asked: tuple[str, ...] | None, seed: int
) -> dict[str, Result]:
    """Compute the named measures, or all that the model and the images allow."""
    from interp import vision
    from interp.vision.readout import image_readout

    x, labels = pictures.pixels, pictures.labels
    embeds = _may_embed(model) and image_readout(model).kind == "embedding"
    texts = None
    if pictures.texts is not None:
        texts = vision.text_embeddings(model, pictures.texts)
    classes = not embeds or texts is not None
    needs = {
        "direct": (classes, "--file with texts, as the model has no classes"),
        "class_token": (classes, "--file with texts, as the model has no classes"),
        "pruning": (classes, "--file with texts, as the model has no classes"),
        "readouts": (labels is not None, "images in subfolders named after their class"),
        "agreement": (pictures.masks is not None, "--set masks"),
        "cue": (
            pictures.cues is not None and labels is not None and classes,
            "--set cues and labels, and --file of a model without classes",
        ),
        "texts": (pictures.bank is not None, "--set bank"),
    }
    for name in asked or ():
        there, what = needs.get(name, (True, ""))
        if not there:
            raise OptionError(f"--method {name} needs {what}")
    chosen = asked or tuple(
        m for m in MEASURES if m not in ON_REQUEST and needs.get(m, (True, ""))[0]
    )
    if asked is None and "class_token" in chosen and not _has_class_token(model, x):
        chosen = tuple(m for m in chosen if m != "class_token")
    results: dict[str, Result] = {}
    for name in chosen:
        if name == "cue":
            results |= _cue(model, pictures, texts, seed)
        elif name == "registers":
            results |= _registers(model, pictures, None if embeds else labels, seed)
        else:
            results[name] = _one(model, pictures, name, texts, embeds, seed)
    return results


def _one(
    model: Model, pictures: Pictures, name: str, texts: Any, embeds: bool, seed: int
) -> Result:
    from interp import vision

    x, labels, bank = pictures.pixels, pictures.labels, pictures.bank or ()
    measures: dict[str, Callable[[], Result]] = {
        "direct": lambda: vision.image_direct_effects(model, x, labels, texts=texts, seed=seed),
        "distance": lambda: vision.patch_distance(model, x),
        "tokens": lambda: vision.high_norm_tokens(model, x),
        "class_token": lambda: vision.class_token_effects(model, x, labels, texts=texts, seed=seed),
        "pruning": lambda: vision.prune_image_tokens(
            model, x, labels, masks=pictures.masks, texts=texts, seed=seed
        ),
        "readouts": lambda: vision.head_readouts(model, x, labels, seed=seed),
        "agreement": lambda: vision.map_agreement(
            model, x, pictures.masks, labels=None if embeds else labels, seed=seed
        ),
        "texts": lambda: vision.describe_heads(
            model, x, vision.text_embeddings(model, bank), bank, ranks=min(5, len(bank)), seed=seed
        ),
    }
    return measures[name]()


def _may_embed(model: Model) -> bool:
    return not getattr(model.config, "architectures", None) or not any(
        "ImageClassification" in name for name in model.config.architectures
    )


def _has_class_token(model: Model, pixels: np.ndarray) -> bool:
    from interp.vision.images import image_batch
    from interp.vision.patterns import grid_of

    return grid_of(model, image_batch(model, pixels[:1])).class_token


def _cue(model: Model, pictures: Pictures, texts: Any, seed: int) -> dict[str, Result]:
    """Locate heads on a random half of the images, and correct them on the other."""
    from interp import vision

    assert pictures.cues is not None
    assert pictures.labels is not None
    order = np.random.default_rng(seed).permutation(len(pictures.pixels))
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    located = vision.locate_spurious_heads(
        model,
        pictures.pixels[first],
        pictures.labels[first],
        pictures.cues[first],
        texts=texts,
        seed=seed,
    )
    return {
        "cue": located,
        "corrected": vision.correct_spurious_heads(
            model,
            pictures.pixels[second],
            pictures.labels[second],
            pictures.cues[second],
            located,
            how="forward",
            texts=texts,
            seed=seed,
        ),
    }


def _registers(model: Model, pictures: Pictures, labels: Any, seed: int) -> dict[str, Result]:
    """Find register neurons on one half of the images, and shift them on the other."""
    from interp import vision

    order = np.random.default_rng(seed).permutation(len(pictures.pixels))
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    neurons = vision.register_neurons(model, pictures.pixels[first], seed=seed)
    second_labels = None if labels is None else labels[second]
    return {
        "registers": neurons,
        "added_register": vision.added_register(
            model, pictures.pixels[second], neurons, second_labels, seed=seed
        ),
    }
