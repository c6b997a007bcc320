"""Runs of a vision transformer with and without an added token that takes over some neurons."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.core.errors import UnreadableAttention
from interp.vision.high_norm_tokens import high_norm_patches
from interp.vision.images import batches_of, vision_sites
from interp.vision.neurons import added_token, changed_neurons
from interp.vision.readout import image_output

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
                own = model.capture(
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
            streams = [own["resid_post", s.layer] for s in sites]
        lengths = [x.double().norm(dim=-1) for x in streams]
        last = lengths[0].shape[1] - (which is not None)
        now = [high_norm_patches(x[:, first:last], cut, times) for x in lengths]
        if high is None:
            before = own["resid_pre", sites[0].layer].double().norm(dim=-1)[:, first:last]
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
                        own["pattern", s.layer].double()[:, :, :last, first:last].mean((1, 2)) * m
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
