"""Input tensors of a vision model from an image file, by the checkpoint's own processor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import LoadError, OptionError, PromptError

if TYPE_CHECKING:
    from torch import Tensor

    from interp.model.model import Model


def image_inputs(
    model: Model, source: str, path: Path, *, revision: str | None = None
) -> dict[str, Tensor]:
    """Return the pixels as the model receives them: resized, cropped and normalised.

    Args:
        model: the model.
        source: folder or hub id of the model, which contains its processor.
        path: the image file.
        revision: branch, tag or commit of a hub model.

    Raises:
        OptionError: the model does not read images alone, or pillow is not installed.
        PromptError: the file is not an image.
        LoadError: there is no image processor beside the weights.
    """
    if model.kind != "vision":
        raise OptionError(
            f"{model.name} is a model of kind {model.kind}; it does not read images alone"
        )
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise OptionError("reading images needs pillow: pip install pillow") from error
    try:
        with Image.open(path) as file:
            image = file.convert("RGB")
    except UnidentifiedImageError as error:
        raise PromptError(f"{path} is not an image that pillow can read") from error
    except OSError as error:
        raise PromptError(f"{path} cannot be read: {error.strerror or error}") from error
    from transformers import AutoImageProcessor

    try:
        processor: Any = AutoImageProcessor.from_pretrained(source, revision=revision or "main")
    except (OSError, ValueError) as error:
        raise LoadError(
            f"{source} has no image processor (preprocessor_config.json); give pixel_values to "
            "interp.heads.patterns.view instead"
        ) from error
    return {"pixel_values": processor(images=image, return_tensors="pt")["pixel_values"]}
