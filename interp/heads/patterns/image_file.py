"""An image file as what a vision model is called with, by the checkpoint's own processor."""

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
    """The pixels as the model sees them: resized, cropped and normalised as it was trained.

    Args:
        source: folder or hub id that the model came from, which holds its processor.

    Raises:
        OptionError: the model reads no images alone, or pillow is not installed.
        PromptError: a file that is no image.
        LoadError: no image processor lies beside the weights.
    """
    if model.kind != "vision":
        raise OptionError(f"{model.name} is a model of kind {model.kind}; it reads no image alone")
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise OptionError("reading images needs pillow: pip install pillow") from error
    try:
        with Image.open(path) as file:
            image = file.convert("RGB")
    except UnidentifiedImageError as error:
        raise PromptError(f"{path} is no image that pillow can read") from error
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
