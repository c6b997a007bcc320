"""An added token that takes over what register neurons write, without training."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.core.errors import OptionError, UnreadableAttention
from interp.model.model_argument import takes_model
from interp.vision.high_norm_tokens import high_norm_patches
from interp.vision.images import (
    batches_of,
    checked_labels,
    image_batch,
    image_provenance,
    vision_sites,
)
from interp.vision.neurons import added_token, changed_neurons, width_of, writing_matrices
from interp.vision.patterns import grid_of
from interp.vision.readout import image_output
from interp.vision.result import ImageScores

if TYPE_CHECKING:
    from interp.model.model import Model


BY_LAYER = {
    "high_norm_share": "share of patches",
    "on_high_norm_patches": "attention mass",
    "register_norm": "median norms of patches",
}


@dataclass(frozen=True, eq=False)
class RegisterRun:
    """Values of one run of all images.

    Args:
        by_layer: values of `BY_LAYER`, for each layer and image.
        read: patches of high norm in the stream that each layer reads.
        choice: index of the largest output of each image.
    """

    by_layer: dict[str, Float[np.ndarray, "layer image"]]
    read: list[Bool[Tensor, "image patch"]]
    choice: Int[np.ndarray, " image"]


def register_run(
    model: Model,
    pixels: Tensor,
    matrices: dict[int, str],
    which: dict[int, list[int]] | None,
    high: list[Tensor] | None,
    limits: tuple[int, float | None, float],
    size: int,
) -> RegisterRun:
    """Run all images with neurons shifted to an added token, or unchanged."""
    first, cut, times = limits
    sites = vision_sites(model)
    shares, norms, masses, marks, choice, start = [], [], [], [], [], 0
    for inputs in batches_of(model, pixels, size=size):
        stop = start + len(inputs["pixel_values"])
        with ExitStack() as changes:
            streams = None
            if which is not None:
                streams = changes.enter_context(added_token(model))
                shifts = {matrices[n]: partial(shift_to_last, neurons=x) for n, x in which.items()}
                changes.enter_context(changed_neurons(model, shifts))
            try:
                cache = model.capture(
                    inputs, ("pattern", "resid_pre", "resid_post"), stack=sites[0].stack
                )
                if streams is not None:
                    streams = list(streams)
                choice.append(image_output(model, inputs)[0].argmax(-1))
            except (RuntimeError, ValueError) as error:
                if which is None:
                    raise
                raise UnreadableAttention(
                    f"{model.name}: its layers do not take one more token: {error}"
                ) from error
        if streams is None:
            streams = [cache["resid_post", s.layer] for s in sites]
        lengths = [x.double().norm(dim=-1) for x in streams]
        last = lengths[0].shape[1] - (which is not None)
        now = [high_norm_patches(x[:, first:last], cut, times) for x in lengths]
        if high is None:
            before = cache["resid_pre", sites[0].layer].double().norm(dim=-1)[:, first:last]
            mine = [high_norm_patches(before, cut, times), *now[:-1]]
        else:
            mine = [x[start:stop] for x in high]
        marks.append(torch.stack(mine))
        shares.append(torch.stack([x.double().mean(1) for x in now]))
        norms.append(torch.stack([x[:, -1] / x[:, first:last].median(1).values for x in lengths]))
        masses.append(
            torch.stack(
                [
                    (
                        cache["pattern", s.layer].double()[:, :, :last, first:last].mean((1, 2)) * m
                    ).sum(-1)
                    for s, m in zip(sites, mine, strict=True)
                ]
            )
        )
        start = stop
    by_layer = {
        name: torch.cat(x, 1).cpu().numpy()
        for name, x in zip(BY_LAYER, (shares, masses, norms), strict=True)
    }
    return RegisterRun(by_layer, list(torch.cat(marks, 1)), torch.cat(choice).cpu().numpy())


def shift_to_last(
    values: Float[Tensor, "image token neuron"], neurons: Sequence[int]
) -> Float[Tensor, "image token neuron"]:
    """Give the last token the largest activation of each neuron over tokens, and the others 0."""
    which = list(neurons)
    new = values.clone()
    new[..., which] = 0
    new[:, -1, which] = values[:, :-1, which].amax(1)
    return new


@takes_model
def added_register(
    model: Model,
    images: Any,
    neurons: ImageScores | Sequence[tuple[int, int]],
    labels: Any = None,
    *,
    cut: float | None = None,
    times: float = 4.0,
    n_random: int = 3,
    batch_size: int = 16,
    seed: int = 0,
) -> ImageScores:
    """Shift register neurons to an added token, and measure norms, attention and accuracy.

    A token of zeros is added behind the patches. In every given neuron it gets the largest
    activation over the tokens of the image, and all other tokens get 0. The added token is cut off
    again behind the last layer. Rows of layers give the share of patches of high norm, the mean
    attention of the model's own tokens, over heads, on the patches that have a high norm in the
    unchanged model in the stream which the layer reads, and the norm of the added token. Rows of
    the model give the accuracy, or without labels the agreement with the unchanged model's choice.
    Each is given before ("without") and after the change; the null is the mean of the same change
    of as many random neurons of the same layers.

    Args:
        model: a vision transformer.
        images: images; see `interp.vision.image_batch`. Not those on which the neurons were
            ranked, for a fair judgement.
        neurons: the result of `register_neurons`, or layer and neuron of each.
        labels: class of each image, for models with classes.
        cut: norm above which a patch counts; by default `times` the median of the image.
        times: multiple of the median norm above which a patch counts, without a cut.
        n_random: number of draws of the null.
        batch_size: images that run together.
        seed: seed of the null.

    Reference: Jiang et al. 2025, "Vision Transformers Don't Need Trained Registers" (arXiv
    2506.08010).

    Raises:
        OptionError: a neuron does not exist or is named twice, or an option is out of range.
        PromptError: the images do not fit the model.
        UnreadableAttention: the model's layers do not take one more token, or its neurons cannot
            be read.

    Unit: share of patches, attention mass, medians, or share of images.

    Cost: Four forward passes, and two for each draw of the null.

    Null: as many random neurons of the same layers.

    Not for: models with position biases between tokens (BEiT), which have none for the added token.
    """
    if (cut is not None and not cut > 0) or not times > 0 or n_random < 1:
        raise OptionError(f"cut={cut}, times={times}, n_random={n_random}; give positive numbers")
    pixels = image_batch(model, images)
    first, matrices = grid_of(model, pixels).prefix, writing_matrices(model, pixels)
    widths = {n: width_of(model, path) for n, path in matrices.items()}
    chosen = _by_layer(neurons, widths)
    classes = None if labels is None else checked_labels(model, labels, len(pixels))
    rng = np.random.default_rng(seed)

    def run(which: dict[int, list[int]] | None, high: list[Tensor] | None) -> RegisterRun:
        return register_run(model, pixels, matrices, which, high, (first, cut, times), batch_size)

    plain = run(None, None)
    changed = run(chosen, plain.read)
    drawn = [
        run({n: _others(rng, widths[n], x) for n, x in chosen.items()}, plain.read)
        for _ in range(n_random)
    ]
    targets = plain.choice if classes is None else classes
    right = "agreement" if classes is None else "accuracy"
    sites = vision_sites(model)
    parts, places, metrics, units, values, null = [], [], [], [], [], []
    for state, outcome in (("without", plain), ("with", changed)):
        for metric, unit in BY_LAYER.items():
            if metric == "register_norm" and state == "without":
                continue
            for i, site in enumerate(sites):
                parts.append(f"layer {site.layer}, {state} register")
                places.append((site.stack, site.layer, -1))
                metrics.append(metric)
                units.append(unit)
                values.append(outcome.by_layer[metric][i])
                random = [x.by_layer[metric][i] for x in drawn]
                null.append(np.nan if state == "without" else _mean_of(random))
        parts.append(f"{state} register")
        places.append((sites[0].stack, -1, -1))
        metrics.append(right)
        units.append("share of images")
        values.append((outcome.choice == targets).astype(float))
        null.append(
            np.nan if state == "without" else float(np.mean([x.choice == targets for x in drawn]))
        )
    named = [f"L{n}N{i}" for n, x in chosen.items() for i in x]
    return ImageScores(
        tuple(parts),
        tuple(places),
        tuple(metrics),
        tuple(units),
        np.stack(values),
        np.array(null, dtype=float),
        notes={"neurons": ", ".join(named)},
        provenance=image_provenance(
            model,
            pixels,
            "added_register",
            seed=seed,
            neurons=named,
            cut=cut,
            times=times,
            n_random=n_random,
            null="as many random neurons of the same layers",
        ),
    )


def _by_layer(
    neurons: ImageScores | Sequence[tuple[int, int]], widths: dict[int, int]
) -> dict[int, list[int]]:
    pairs: list[tuple[int, int]]
    if isinstance(neurons, ImageScores):
        numbers = neurons.extra.get("neuron", ())
        if not numbers:
            raise OptionError("this result names no neurons; give that of register_neurons")
        pairs = [(n, int(i)) for (_, n, _), i in zip(neurons.places, numbers, strict=True)]
    else:
        pairs = [(int(n), int(i)) for n, i in neurons]
    if not pairs or len(set(pairs)) < len(pairs):
        raise OptionError("there is no neuron, or one is named twice; give (layer, neuron) pairs")
    by_layer: dict[int, list[int]] = {}
    for layer, neuron in pairs:
        if layer not in widths or not 0 <= neuron < widths[layer]:
            known = ", ".join(f"layer {n}: 0 to {w - 1}" for n, w in widths.items())
            raise OptionError(f"there is no neuron {neuron} in layer {layer}; there are {known}")
        by_layer.setdefault(layer, []).append(neuron)
    return by_layer


def _others(rng: np.random.Generator, width: int, chosen: list[int]) -> list[int]:
    """Draw as many neurons of a layer as were chosen, without those."""
    rest = np.setdiff1d(np.arange(width), chosen)
    if len(rest) < len(chosen):
        raise OptionError(
            f"{len(chosen)} of {width} neurons of a layer are given, so that no null of as many "
            "others can be drawn; give fewer"
        )
    return rng.choice(rest, len(chosen), replace=False).tolist()


def _mean_of(draws: list[np.ndarray]) -> float:
    """Return the mean over draws and images."""
    return float(np.mean(draws))
