"""Inputs of a vision model from an image file, by the processor of its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import LoadError, OptionError
from interp.model.image_files import read_image

if TYPE_CHECKING:
    from torch import Tensor

    from interp.model.model import Model


def image_inputs(
    model: Model, source: str, path: Path, *, revision: str | None = None
) -> dict[str, Tensor]:
    """Return the pixels of an image, resized, cropped and normalised as in training."""
    if model.kind != "vision":
        raise OptionError(
            f"{model.name} is a model of kind {model.kind}; it does not read images alone"
        )
    image = read_image(path).convert("RGB")
    from transformers import AutoImageProcessor

    try:
        processor: Any = AutoImageProcessor.from_pretrained(source, revision=revision or "main")
    except (OSError, ValueError) as error:
        raise LoadError(
            f"{source} has no image processor (preprocessor_config.json); give pixel_values to "
            "interp.heads.patterns.view instead"
        ) from error
    return {"pixel_values": processor(images=image, return_tensors="pt")["pixel_values"]}
