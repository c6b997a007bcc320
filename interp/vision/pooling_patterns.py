"""Patterns of a pooling attention with one learned query, checked against the model's own run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.errors import UnreadableAttention
from interp.core.interrupts import held
from interp.vision.images import BATCH, batches_of
from interp.vision.readout import image_output, pooling_map

if TYPE_CHECKING:
    from interp.model.model import Model

_RESIDUAL = {torch.float64: 1e-10, torch.float32: 1e-4}  # relative to the largest value


def pooling_of(model: Model) -> str:
    """Return the path of the pooling attention of a model."""
    paths = [
        name
        for name, each in model.module.named_modules()
        if isinstance(getattr(each, "probe", None), nn.Parameter)
        and isinstance(getattr(each, "attention", None), nn.MultiheadAttention)
    ]
    if len(paths) != 1:
        raise UnreadableAttention(
            f"{model.name} has {len(paths)} pooling attentions with a learned query; SigLIP has "
            "one. Where other models look is in image_maps and class_token_effects"
        )
    return paths[0]


def pooling_patterns(
    model: Model, pixels: Tensor, size: int = BATCH
) -> tuple[Float[Tensor, "image head token"], float]:
    """Return the patterns, and the largest relative difference of what they should give."""
    name = pooling_of(model)
    pooling = model.module.get_submodule(name)
    patterns, apart = [], 0.0
    for inputs in batches_of(model, pixels, size=size):
        stream, pooled = _own_run(model, pooling, inputs)
        pattern, wrong = _read(pooling, stream, pooled)
        apart = max(apart, wrong)
        patterns.append(pattern)
    if apart > _RESIDUAL.get(model.dtype, 1e-2):
        raise UnreadableAttention(
            f"{model.name}: pattern, values and output matrix of {name} differ from its own result "
            f"by {apart:.2g} of the largest value"
        )
    return torch.cat(patterns), apart


@held()
def _own_run(
    model: Model, pooling: nn.Module, inputs: dict[str, Tensor]
) -> tuple[Float[Tensor, "image token d"], Float[Tensor, "image d"]]:
    """Return what the pooling reads and gives in the model's own run."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        seen[:] = [args[0].detach(), out.detach()]

    handle = pooling.register_forward_hook(keep)
    try:
        image_output(model, inputs)
    finally:
        handle.remove()
    return seen[0], seen[1]


def _read(
    pooling: Any, stream: Float[Tensor, "image token d"], pooled: Float[Tensor, "image d"]
) -> tuple[Float[Tensor, "image head token"], float]:
    """Return the pattern, and the largest relative difference of what it should give."""
    pattern, bias, value, output = pooling_map(pooling, stream)
    mixed = torch.einsum("iht,itd,hdv,hve->ie", pattern, stream.double(), value, output) + bias
    with torch.no_grad():
        probe = pooling.probe.expand(len(stream), -1, -1)
        y = pooling.attention(probe, stream, stream)[0][:, 0]
        rest = pooling.mlp(pooling.layernorm(mixed.to(stream.dtype)))
    whole = mixed + rest.double()
    pairs = ((mixed, y.double()), (whole, pooled.double()))
    return pattern, max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
