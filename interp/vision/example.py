"""One image as the example of an attribution method: its tokens are the patches."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool

from interp.attribution.example import Example
from interp.attribution.target import AnyTarget, Target, parse_target
from interp.core.errors import OptionError, PromptError
from interp.model.views import layers_view
from interp.vision.images import PatchGrid, image_batch, patch_grid, vision_sites

if TYPE_CHECKING:
    from interp.model.model import Model


class ImageExample(Example):
    """One image of a vision transformer, its patches, and the class logit to explain.

    The sources are the tokens of the image: class token, registers, patches. The output of the
    target is the class token, or all tokens equally in a model without one. Methods that read
    patterns or gradients of patterns work on it as on text: `rollout.of(ImageExample(...))`.

    Args:
        model: a vision transformer alone, not one of two towers.
        image: one image; see `interp.vision.image_batch`.
        target: a target, or `class:N`; the model's own choice by default.

    Raises:
        PromptError: several images are given, or the model has two towers.
        OptionError: the model has no classes.
    """

    def __init__(self, model: Model, image: Any, target: AnyTarget | None = None) -> None:
        model = layers_view(model)
        pixels = image_batch(model, image)
        if len(pixels) != 1:
            raise PromptError("an attribution explains one image; call it once per image")
        if len(model.stacks) > 1:
            raise PromptError(
                f"{model.name} has the stacks {', '.join(model.stacks)}; an attribution explains a "
                "vision transformer alone: load its image tower"
            )
        self.model, self.inputs = model, {"pixel_values": pixels}
        first = vision_sites(model)[0]
        z = model.capture(self.inputs, ("z",), layers=first.layer)["z", first.layer]
        self.grid: PatchGrid = patch_grid(model, z.shape[2])
        self.ids = tuple(range(self.grid.tokens))
        self.short = {}
        if isinstance(target, Target):
            self.target = target
            return
        if self.output.dim() != 2:
            raise OptionError(f"{model.name} has no logits of classes; give a Target of its output")
        chosen = parse_target(model, target, self.output)
        # without a class token the classifier reads the mean of the tokens
        position = 0 if self.grid.class_token else None
        self.target = Target(chosen.name, chosen.read, position, chosen.unit)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """Names of the tokens."""
        return self.grid.names

    @cached_property
    def special(self) -> Bool[np.ndarray, " source"]:
        """True for the class token and registers."""
        return np.arange(len(self)) < self.grid.prefix

    @cached_property
    def output_tokens(self) -> tuple[str, ...]:
        """Names of the tokens at the output."""
        return self.grid.names

    def read(self, output: torch.Tensor) -> torch.Tensor:
        """Compute the target's value from outputs."""
        real = torch.ones(len(output), len(self), dtype=torch.bool, device=output.device)
        return self.target.read(output, real)
