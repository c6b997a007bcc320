"""Checked images, masks and labels of a vision transformer, and the grid of its patches."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.core.annotated import value_in_words
from interp.core.errors import OptionError, PromptError
from interp.model.content import model_provenance, tensors_hash
from interp.model.inputs import takes

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

Array = np.ndarray
BATCH = 64
"""Images that run together by default."""


@dataclass(frozen=True)
class PatchGrid:
    """Tokens of an image: first those that belong to no patch, then the patches row by row.

    Args:
        rows: patches from top to bottom.
        columns: patches from left to right.
        prefix: tokens before the patches: the class token, then registers.
        class_token: True if the first token is a class token.
        patch: height and width of a patch in pixels.
    """

    rows: int
    columns: int
    prefix: int
    class_token: bool
    patch: tuple[int, int]

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return self.prefix + self.rows * self.columns

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tokens: CLS, R1, R2, ..., then row,column of each patch."""
        first = ["CLS"] if self.class_token else []
        first += [f"R{i + 1}" for i in range(self.prefix - len(first))]
        return (*first, *(f"{r},{c}" for r in range(self.rows) for c in range(self.columns)))

    def centres(self) -> Float[Array, "patch 2"]:
        """Row and column of every patch, in patches."""
        return np.argwhere(np.ones((self.rows, self.columns))).astype(float)

    def shares(self, masks: Bool[Array, "image row column"]) -> Float[Array, "image patch"]:
        """Return the share of each patch that lies in the mask."""
        high, wide = self.patch
        cut = np.asarray(masks, dtype=float)[:, : self.rows * high, : self.columns * wide]
        cells = cut.reshape(len(cut), self.rows, high, self.columns, wide)
        return cells.mean((2, 4)).reshape(len(cut), -1)


def vision_config(model: Model) -> Any:
    """Return the part of a config that describes the image tower."""
    if "pixel_values" not in takes(model.module):
        raise PromptError(
            f"{model.name} ({model.kind}) reads no images: its forward takes no pixel_values; give "
            "a vision transformer, such as bundled:shapes, or a CLIP or SigLIP model"
        )
    return getattr(model.config, "vision_config", model.config)


def vision_stack(model: Model) -> str:
    """Return the name of the stack of the image tower: vision beside text, else encoder."""
    vision_config(model)
    return "vision" if "vision" in model.stacks else "encoder"


def vision_sites(model: Model) -> list[Site]:
    """Return the attention layers of the image tower, in order."""
    stack = vision_stack(model)
    return sorted((s for s in model.sites if s.stack == stack), key=lambda s: s.layer)


def expected_size(model: Model) -> tuple[int, int, int]:
    """Return channels, height and width of the images that the config asks for."""
    config = vision_config(model)
    size = getattr(config, "image_size", None)
    if size is None:
        raise PromptError(
            f"{model.name} reads patches of images of any shape (its config has no image_size), so "
            "there is no one grid; capture, score or edit it with the tensors of its processor"
        )
    high, wide = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
    return int(getattr(config, "num_channels", 3)), high, wide


def image_batch(model: Model, images: Any) -> Float[Tensor, "image channel row column"]:
    """Return images as a tensor of the model's type, checked against its config.

    Args:
        model: a model that reads images.
        images: an array or tensor of one image or several, `{"pixel_values": ...}`, or an object
            with `pixels`.

    Raises:
        PromptError: the model reads no images, or they have another size, mode or values that are
            not finite numbers.
    """
    channels, high, wide = expected_size(model)
    if isinstance(images, Mapping):
        if "pixel_values" not in images:
            raise PromptError(
                f"the images have the names {', '.join(map(str, images))}; give pixel_values"
            )
        images = images["pixel_values"]
    try:
        x = torch.as_tensor(getattr(images, "pixels", images))
    except (TypeError, ValueError, RuntimeError) as error:
        raise PromptError(
            f"{value_in_words(images)} is not a batch of images; give an array of pixels, or what "
            "interp.vision.read_images returns of files"
        ) from error
    x = x[None] if x.dim() == 3 else x
    wanted = f"{channels} channels, {high} rows and {wide} columns"
    if x.dim() != 4:
        raise PromptError(
            f"images of shape {tuple(x.shape)}; {model.name} takes [image, channel, row, column] "
            f"with {wanted}"
        )
    if x.shape[1] != channels and x.shape[-1] == channels:
        raise PromptError(
            f"images of shape {tuple(x.shape)} have their channels last; {model.name} takes "
            f"[image, channel, row, column]: images.transpose(0, 3, 1, 2)"
        )
    if x.shape[1] != channels:
        raise PromptError(
            f"images with {x.shape[1]} channels; {model.name} was made for {channels}: convert "
            f"them to {'RGB' if channels == 3 else 'grey' if channels == 1 else 'that mode'}"
        )
    if tuple(x.shape[2:]) != (high, wide):
        raise PromptError(
            f"images of {x.shape[2]} x {x.shape[3]} pixels; the config of {model.name} asks for "
            f"{high} x {wide}: resize them first"
        )
    if not len(x):
        raise PromptError("there are no images; give at least one")
    if not x.is_floating_point():
        raise PromptError(
            f"images of {str(x.dtype).removeprefix('torch.')}; give floating-point numbers, "
            "normalised as in the model's training (its image processor does this)"
        )
    if not bool(torch.isfinite(x).all()):
        raise PromptError("an image has NaN or infinite pixels; remove it")
    return x.to(model.device, model.dtype)


def patch_grid(model: Model, tokens: int) -> PatchGrid:
    """Return the grid of an image's tokens, from the config and the number of tokens in a run."""
    config = vision_config(model)
    _, high, wide = expected_size(model)
    size = config.patch_size
    patch = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
    rows, columns = high // patch[0], wide // patch[1]
    prefix = tokens - rows * columns
    registers = int(getattr(config, "num_register_tokens", 0) or 0)
    if prefix not in (registers, registers + 1, registers + 2):
        raise PromptError(
            f"{model.name} has {tokens} tokens per image, but its config gives {rows} x {columns} "
            "patches; models that merge patches have no grid of one token per patch"
        )
    return PatchGrid(rows, columns, prefix, prefix > registers, patch)


def has_classes(model: Model) -> bool:
    """Return True for a classifier; the towers of CLIP and SigLIP have an embedding instead."""
    named = (getattr(model.config, "id2label", None) or {}).values()
    has_names = any(
        not str(name).startswith("LABEL_") for name in named
    )  # not those of every config
    return has_names or "ImageClassification" in type(model.module).__name__


def classes_by_text(names: Sequence[str], texts: Sequence[str] | None) -> Int[Array, " image"]:
    """Return the class of each name: the index of its text, or of the name among all names.

    A name stands for the text that equals it, else for the only text that holds it as words.
    """
    if texts is None:
        known = sorted(set(names))
        return np.array([known.index(name) for name in names], dtype=int)
    index = {}
    for name in dict.fromkeys(names):
        fits = [i for i, text in enumerate(texts) if text == name]
        words = re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE)
        fits = fits or [i for i, text in enumerate(texts) if words.search(text)]
        if len(fits) != 1:
            raise OptionError(
                f"the class {name!r} is in {len(fits)} of the texts ({', '.join(texts[:6])}); name "
                "it after one text, or by words that only that text has"
            )
        index[name] = fits[0]
    return np.array([index[name] for name in names], dtype=int)


def checked_labels(model: Model, labels: Any, number: int) -> Int[Array, " image"]:
    """Return one class per image, as indices."""
    names = {str(v): int(k) for k, v in (getattr(model.config, "id2label", None) or {}).items()}
    values = labels.tolist() if hasattr(labels, "tolist") else labels
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise OptionError(f"{value_in_words(labels)} is not a list of labels; give one per image")
    if len(values) != number:
        raise OptionError(f"{len(values)} labels for {number} images; give one per image")
    classes = int(getattr(model.config, "num_labels", 0) or 0)
    indices = []
    for label in values:
        index = names.get(label, -1) if isinstance(label, str) else label
        if not isinstance(index, int) or not 0 <= index < classes:
            known = ", ".join(f"{i} ({n})" for n, i in list(names.items())[:6])
            raise OptionError(
                f"label {label!r} is not a class of {model.name}, which has {classes}: {known}"
                f"{', ...' if classes > 6 else ''}"
            )
        indices.append(index)
    return np.array(indices, dtype=int)


def checked_masks(model: Model, masks: Any, number: int) -> Bool[Array, "image row column"]:
    """Return one mask per image."""
    _, high, wide = expected_size(model)
    array = np.asarray(getattr(masks, "masks", masks))
    if array.shape != (number, high, wide):
        raise OptionError(
            f"masks of shape {array.shape}; give {(number, high, wide)}: one per image, with its "
            "height and width"
        )
    binary = array.astype(bool)
    empty = np.flatnonzero(~binary.any((1, 2)))
    if len(empty):
        raise OptionError(f"the mask of image {int(empty[0])} is empty; leave that image out")
    return binary


def image_provenance(
    model: Model, pixels: Tensor, made_by: str, *, seed: int | None = None, **options: Any
) -> dict[str, Any]:
    """Return the provenance of a result from images."""
    number = len(pixels)
    return model_provenance(model) | {
        "prompts": f"{number} images",
        "prompts_hash": tensors_hash({"pixel_values": pixels}),
        "n_prompts": number,
        "engine": "stored",
        "options": options,
        "seed": seed,
        "made_by": f"interp.vision.{made_by}",
    }


def batches_of(model: Model, pixels: Tensor, size: int = BATCH) -> Sequence[dict[str, Tensor]]:
    """Split images into inputs of a few; a model of two towers also gets one short text."""
    rest = {}
    if "input_ids" in takes(model.module):
        end = getattr(getattr(model.config, "text_config", None), "eos_token_id", None) or 0
        rest = {"input_ids": torch.full((1, 2), int(end), device=model.device)}
    return [{"pixel_values": part} | rest for part in pixels.split(size)]
