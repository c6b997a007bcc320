"""Exact decomposition of class logits or image embeddings into heads, MLPs, embedding, biases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import UnreadableAttention
from interp.model.calls.sites import POOLING
from interp.model.precision import why_inexact
from interp.vision.images import batches_of, image_batch, vision_sites
from interp.vision.readout import FrozenReadout, ImageReadout, image_output, image_readout

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.capture import ActivationCache
    from interp.model.model import Model

Array = np.ndarray
_RESIDUAL = 1e-4  # relative to the sum of absolute parts: float32 error over many layers


@dataclass(frozen=True, eq=False)
class ImageParts:
    """Contribution of each part of a model to the output of each image.

    Args:
        heads: contributions of the heads, in order of layers.
        others: contributions of the MLPs by layer, of the embedding of patches and positions, of
            the biases, and of the MLP of a pooling head where there is one.
        names: names of the parts in `others`.
        places: stack, layer and head of each head.
        output: class logits, or embeddings before they are normalised.
        kind: "logits" or "embedding".
        readout: how the output is read from the stream.
        residual: largest difference between the output and the sum of its parts.
        pooling: contributions of the heads of a pooling attention, of its MLP and of its bias: the
            same output once more, split where the patches are pooled; None without one.
        pooling_places: stack, layer and head of the heads of the pooling attention.
    """

    heads: Float[Array, "image head out"]
    others: Float[Array, "image part out"]
    names: tuple[str, ...]
    places: tuple[tuple[str, int, int], ...]
    output: Float[Array, "image out"]
    kind: str
    readout: str
    residual: float
    pooling: Float[Array, "image part out"] | None = None
    pooling_places: tuple[tuple[str, int, int], ...] = ()

    @property
    def pooling_labels(self) -> tuple[str, ...]:
        """Names of the heads of the pooling attention."""
        return tuple(f"L{layer}H{head}" for _, layer, head in self.pooling_places)

    def written(self, name: str) -> Float[Array, "image out"]:
        """Return what a head of the tower or of its pooling attention adds to the output."""
        if self.pooling is not None and name in self.pooling_labels:
            return self.pooling[:, self.pooling_labels.index(name)]
        return self.heads[:, self.find(name)]

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the heads."""
        return tuple(f"L{layer}H{head}" for _, layer, head in self.places)

    def find(self, name: str) -> int:
        """Return the index of a head by its name, such as L2H3."""
        return self.labels.index(name)


def image_parts(model: Model, images: Any, *, batch_size: int = 64) -> ImageParts:
    """Split the output of a vision transformer into what its parts write, image by image.

    The output is a vector of class logits, or the embedding of an image tower (projected, before
    it is normalised). The scale of the final norm, the ratio of an activation in the classifier
    and the pattern of a pooling attention are held at their values on the image, so that the parts
    sum to the output, which is checked.

    Args:
        model: the loaded model.
        images: images; see `interp.vision.image_batch`.
        batch_size: images that run together.

    Reference: Gandelsman et al. 2024, "Interpreting CLIP's Image Representation via Text-Based
    Decomposition" (arXiv 2310.05916).

    Raises:
        PromptError: the images do not fit the model.
        UnreadableAttention: the output cannot be read from the last stream, or the stream is not a
            sum of attention and MLPs.
    """
    pixels, readout = image_batch(model, images), image_readout(model)
    sites = vision_sites(model)
    pools = [s for s in model.sites if s.stack == POOLING and readout.pools_by(s)]
    batches = [
        _of_batch(model, sites, readout, inputs, pools)
        for inputs in batches_of(model, pixels, size=batch_size)
    ]
    heads, others, output = (torch.cat([x[i] for x in batches]).cpu().numpy() for i in range(3))
    pooling = torch.cat([x[3] for x in batches]).cpu().numpy() if pools else None
    apart = np.abs(output - heads.sum(1) - others.sum(1)).max(1)
    size = np.abs(heads).sum(1).max(1) + np.abs(others).sum(1).max(1)
    if bool((apart > _RESIDUAL * size).any()):
        raise UnreadableAttention(
            f"{model.name}: the parts differ from the output by up to {apart.max():.2g}: "
            + why_inexact(
                model.dtype,
                "something besides attention and MLPs writes to the stream, or a norm is applied "
                "to it",
            )
        )
    names = [f"MLP {site.layer}" for site in sites] + ["embedding", "biases"]
    names += [] if others.shape[1] == len(names) else ["pooling MLP"]
    places = [(s.stack, s.layer, h) for s in sites for h in range(s.n_heads)]
    return ImageParts(
        heads,
        others,
        tuple(names),
        tuple(places),
        output,
        readout.kind,
        readout.pooled_by,
        float(apart.max()),
        pooling,
        tuple((s.stack, s.layer, h) for s in pools for h in range(s.n_heads)),
    )


def _of_batch(
    model: Model,
    sites: list[Site],
    readout: ImageReadout,
    inputs: dict[str, Tensor],
    pools: list[Site],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    stack, last = sites[-1].stack, sites[-1].layer
    names = ("resid_pre", "resid_post", "result", "attn_out", "mlp_out")
    cache = model.capture(inputs, names, stack=stack)
    output = image_output(model, inputs)[0].double()
    frozen = readout.freeze(cache["resid_post", last])
    keep = slice(0, 1) if readout.only_class_token else slice(None)
    heads, biases, mlps = [], 0.0, []
    for site in sites:
        mine, rest = _of_site(site, cache, frozen, keep)
        heads.append(mine)
        biases = biases + rest
        mlps.append(_whole(frozen, cache["mlp_out", site.layer][:, keep]))
    embedding = _whole(frozen, cache["resid_pre", sites[0].layer][:, keep])
    constant, beside = frozen.rest()
    others = [*mlps, embedding, biases + constant]
    others += [beside] if readout.pooled_by not in ("", readout.pool) else []
    pooling = torch.zeros_like(output[:, None])[:, :0]
    for site in pools:
        results = model.capture(inputs, ("result",), layers=site.layer, stack=site.stack)
        of_heads, mlp = frozen.of_pooling(results["result", site.layer][:, 0])
        rest = output - of_heads.sum(1) - mlp
        pooling = torch.cat([of_heads, mlp[:, None], rest[:, None]], 1)
    return torch.cat(heads, 1), torch.stack(others, 1), output, pooling


def _whole(frozen: FrozenReadout, written: Tensor) -> Tensor:
    return frozen.linear(written[:, None])[:, 0]


def _of_site(
    site: Site, own: ActivationCache, frozen: FrozenReadout, keep: slice
) -> tuple[Float[Tensor, "image head out"], Float[Tensor, "image out"]]:
    """Return what the heads of one layer add, and what its biases add."""
    heads = frozen.linear(own["result", site.layer][:, keep].double().movedim(2, 1))
    whole = _whole(frozen, own["attn_out", site.layer][:, keep])
    return heads, whole - heads.sum(1)
