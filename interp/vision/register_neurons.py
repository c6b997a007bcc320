"""Neurons that write tokens of high norm, found on one half of the images, judged on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import OptionError, PromptError
from interp.core.statistics import finite_mean
from interp.core.ties import ordered
from interp.model.model_argument import takes_model
from interp.vision.high_norm_tokens import high_norm_patches
from interp.vision.images import batches_of, image_batch, image_provenance, vision_sites
from interp.vision.neurons import read_neurons, writing_matrices
from interp.vision.patterns import grid_of
from interp.vision.readout import image_output
from interp.vision.result import ImageScores, paired_columns

if TYPE_CHECKING:
    from interp.model.model import Model


@takes_model
def register_neurons(
    model: Model,
    images: Any,
    *,
    keep: int = 10,
    layer: int | None = None,
    cut: float | None = None,
    times: float = 4.0,
    batch_size: int = 16,
    seed: int = 0,
) -> ImageScores:
    """Find MLP neurons whose activation at patches of high norm is above that at other patches.

    A neuron is an input of the matrix through which an MLP writes to the stream. Neurons of the
    layers up to `layer` are ranked by their mean activation at the patches whose norm is high after
    that layer minus that at the other patches, on a random half of the images; the score is the
    same difference on each image of the other half. The null takes as many random patches in place
    of those of high norm.

    Args:
        model: a vision transformer.
        images: images; see `interp.vision.image_batch`. At least two.
        keep: number of neurons.
        layer: layer after which the norm is read; by default the first that has the largest share
            of patches of high norm on the first half.
        cut: norm above which a patch counts; by default `times` the median of the image.
        times: multiple of the median norm above which a patch counts, without a cut.
        batch_size: images that run together.
        seed: seed of the split and of the null.

    Returns:
        A row per neuron; `p` and `p_holm` test it against its null, paired over images.

    Reference: Jiang et al. 2025, "Vision Transformers Don't Need Trained Registers" (arXiv
    2506.08010).

    Raises:
        OptionError: an option is out of range, or there is one image.
        PromptError: no patch of one half has a high norm, or the images do not fit.
        UnreadableAttention: the model's neurons cannot be read.

    Unit: activation.

    Cost: Two forward passes.

    Null: as many random patches.

    Not for: neurons of gated MLPs that write with a negative activation; they rank last.
    """
    _require(keep, cut, times)
    pixels = image_batch(model, images)
    if len(pixels) < 2:
        raise OptionError("there is one image; give two or more: one half ranks, the other judges")
    first, layers = grid_of(model, pixels).prefix, [s.layer for s in vision_sites(model)]
    if layer is not None and layer not in layers:
        raise OptionError(f"layer={layer}; give one of {', '.join(map(str, layers))}")
    order = np.random.default_rng(seed).permutation(len(pixels))
    ranking, judging = np.array_split(order, 2)
    high = _high_by_layer(model, pixels, first, cut, times, batch_size)
    shares = high[:, ranking].mean((1, 2))
    at = int(shares.argmax()) if layer is None else layers.index(layer)
    marked = high[at]
    where = f"layer {layers[at]}" if layer is not None or shares.any() else "any layer"
    for name, half in (("first", ranking), ("second", judging)):
        if not marked[half].any():
            limit = f"a norm above {cut}" if cut is not None else f"{times:g} times the median norm"
            raise PromptError(
                f"{model.name}: no patch of the {name} half of the images has {limit} after "
                f"{where}; lower the cut or give more images; a model may also have no such tokens"
            )
    matrices = {n: p for n, p in writing_matrices(model, pixels).items() if n <= layers[at]}
    rng = np.random.default_rng([seed, 1])
    instead = np.stack([rng.permutation(row) for row in marked])
    inside, outside, random = _means(model, pixels, matrices, first, marked, instead, batch_size)
    places = [(n, i) for n, x in zip(matrices, inside, strict=True) for i in range(len(x))]
    at_high, at_rest, null = (np.concatenate(x) for x in (inside, outside, random))
    gain = at_high - at_rest
    mean = finite_mean(gain[:, ranking])
    best = ordered(mean)[:keep]
    stack = vision_sites(model)[0].stack
    return ImageScores(
        tuple(f"L{places[i][0]}N{places[i][1]}" for i in best),
        tuple((stack, places[i][0], -1) for i in best),
        ("register_neuron",) * len(best),
        ("activation",) * len(best),
        gain[best][:, judging],
        finite_mean(null[best][:, judging]),
        extra=paired_columns(
            ("register_neuron",) * len(best), gain[best][:, judging], null[best][:, judging]
        )
        | {
            "neuron": tuple(places[i][1] for i in best),
            "at_high_norm": tuple(finite_mean(at_high[best][:, judging]).tolist()),
            "at_others": tuple(finite_mean(at_rest[best][:, judging]).tolist()),
        },
        notes={
            "norm read after layer": layers[at],
            "neurons": len(places),
            "share of high norm": float(marked.mean()),
        },
        provenance=image_provenance(
            model,
            pixels,
            "register_neurons",
            seed=seed,
            keep=keep,
            layer=layers[at],
            cut=cut,
            times=times,
            null="as many random patches",
        ),
    )


def _require(keep: int, cut: float | None, times: float) -> None:
    if keep < 1:
        raise OptionError(f"keep={keep}; keep at least one neuron")
    if (cut is not None and not cut > 0) or not times > 0:
        raise OptionError(f"cut={cut}, times={times}; give positive numbers")


def _high_by_layer(
    model: Model, pixels: Tensor, first: int, cut: float | None, times: float, size: int
) -> Bool[np.ndarray, "layer image patch"]:
    sites, marks = vision_sites(model), []
    for inputs in batches_of(model, pixels, size=size):
        cache = model.capture(inputs, ("resid_post",), stack=sites[0].stack)
        norms = [cache["resid_post", s.layer].double().norm(dim=-1) for s in sites]
        marks.append(torch.stack([high_norm_patches(x[:, first:], cut, times) for x in norms]))
    return torch.cat(marks, 1).cpu().numpy()


def _means(
    model: Model,
    pixels: Tensor,
    matrices: dict[int, str],
    first: int,
    high: Bool[np.ndarray, "image patch"],
    instead: Bool[np.ndarray, "image patch"],
    size: int,
) -> list[list[Float[np.ndarray, "neuron image"]]]:
    """Return means at marked patches, at the others, and the gain at random ones, by layer."""
    means: list[list[list[Tensor]]] = [[[] for _ in matrices] for _ in range(3)]
    marks = [torch.from_numpy(x).to(pixels.device) for x in (high, instead)]
    start = 0
    for inputs in batches_of(model, pixels, size=size):
        with read_neurons(model, matrices) as neurons:
            image_output(model, inputs)
        stop = start + len(inputs["pixel_values"])
        at_high, other = (x[start:stop, :, None] for x in marks)
        for i, layer in enumerate(matrices):
            patches = neurons[layer][:, first:].double()
            means[0][i].append(_at(patches, at_high))
            means[1][i].append(_at(patches, ~at_high))
            means[2][i].append(_at(patches, other) - _at(patches, ~other))
        start = stop
    return [[torch.cat(x).T.cpu().numpy() for x in layers] for layers in means]


def _at(patches: Tensor, marked: Tensor) -> Float[Tensor, "image neuron"]:
    """Return the mean over marked patches; NaN for an image without one."""
    number = marked.sum(1)
    return torch.where(number > 0, (patches * marked).sum(1) / number.clamp_min(1), torch.nan)
