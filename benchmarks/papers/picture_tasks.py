"""Training of image models of one form of attention on generated images of patterned shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from interp.bundled.shape_images import ShapeImages, shape_images
from interp.core.random_state import drawn_with
from papers.finding import SEEDS
from papers.fitting import fit
from training import forms

SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
TRAINED_ON, TESTED_ON, HELD_OUT = 3000, 500, 10_000


def classifier(
    form: str,
    seed: int,
    change: Callable[[Any], None] | None = None,
    *,
    steps: int = 300,
    rows: int = 32,
    images: ShapeImages | None = None,
    parameters: Callable[[Any], list[Any]] | None = None,
    model: Any = None,
    **sizes: Any,
) -> Any:
    """Train a form on images without a coloured corner; forms of a seed see the same ones.

    Args:
        form: a variant that reads images.
        seed: seed of weights and images.
        change: edits the model before it is trained.
        steps: number of steps.
        rows: images per step.
        images: other images to train on.
        parameters: which parameters are trained; all by default.
        model: a model to go on with.
        sizes: fields of the config that differ from `SIZES`.
    """
    model = model or forms.build(form, seed=seed, gain=1.0, **(SIZES | sizes))
    if change is not None:
        with drawn_with(seed):
            change(model)
    made = images or shape_images(seed, TRAINED_ON, cue="none")
    pixels, labels = torch.from_numpy(made.pixels), torch.from_numpy(made.labels)

    def loss(rng: np.random.Generator) -> torch.Tensor:
        pick = torch.from_numpy(rng.integers(0, len(made), rows))
        return F.cross_entropy(model(pixels[pick]).logits, labels[pick])

    trained = None if parameters is None else parameters(model)
    fit(model, loss, steps=steps, seed=seed, rate=3e-3, parameters=trained)
    return model


def held_out(seed: int) -> ShapeImages:
    """Return images that no model has seen."""
    return shape_images(HELD_OUT + seed, TESTED_ON, cue="none")


@torch.no_grad()
def accuracy(model: Any, images: ShapeImages) -> float:
    """Return the share of images whose class the model names."""
    found = model(torch.from_numpy(images.pixels)).logits.argmax(-1).numpy()
    return float((found == images.labels).mean())


def accuracies(form: str, change: Callable[[Any], None] | None = None, **how: Any) -> np.ndarray:
    """Return the held-out accuracy of a form with each seed."""
    return np.array(
        [accuracy(classifier(form, seed, change, **how), held_out(seed)) for seed in SEEDS]
    )


def rules(model: Any) -> list[Any]:
    """Return the rules of the layers between patches."""
    return [block.attention.rule for block in model.blocks]
