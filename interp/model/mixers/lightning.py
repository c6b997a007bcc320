"""Lightning attention (Qin et al. 2024, arXiv:2401.04658): linear attention with a fixed decay.

M[i, j] = q_i . k_j exp(-s (i - j)) with a slope s per head, without normalisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from interp.model.calls.map_call import MapCall
from interp.model.mixers.mixer import (
    Forward,
    Mixer,
    real_positions,
    refuse_cached_state,
    register_mixer,
)
from interp.model.mixers.state_space import decay


@register_mixer
class Lightning(Mixer):
    """Linear attention of MiniMax: a norm over all heads follows, then a sigmoid gate."""

    classes = ("MiniMaxLightningAttention",)
    needs = (
        "qkv_proj",
        "act_fn",
        "norm",
        "output_gate",
        "slope_rate",
        "num_attention_heads",
        "head_dim",
    )
    projection = "out_proj"
    watched = ("qkv_proj", "norm", "output_gate")

    def enter(self, module: Any, arguments: Mapping[str, Any]) -> None:
        """Refuse a forward that continues from a cached state."""
        refuse_cached_state(module, arguments, "get_linear_cache")

    def read(self, module: Any, forward: Forward) -> MapCall:
        """Return the map of each head; z is what the module's norm received."""
        (scanned,) = forward.given["norm"]
        batch, length, _ = scanned.shape
        heads, width = module.num_attention_heads, module.head_dim
        mixed = module.act_fn(forward.returned["qkv_proj"])
        real = real_positions(forward.arguments, mixed)
        mixed = mixed if real is None else mixed * real[..., None].to(mixed.dtype)
        mixed = mixed.reshape(batch, length, heads, 3 * width).transpose(1, 2)
        q, k, v = mixed.split(width, -1)
        position = torch.arange(length, device=mixed.device, dtype=torch.float64)
        steps = (-module.slope_rate.double().reshape(-1, 1) * position).expand(batch, -1, -1)
        gate = forward.returned["output_gate"]

        def of_rows(rows: Tensor) -> Tensor:
            return (q[:, :, rows].float() @ k.float().mT) * decay(steps, rows).float()

        def to_projection(z: Tensor) -> Tensor:
            flat = z.transpose(1, 2).reshape(scanned.shape).to(scanned.dtype)
            return torch.sigmoid(gate) * module.norm.forward(flat)

        return MapCall(
            v=v,
            z=scanned.view(batch, length, heads, width).transpose(1, 2),
            kind="linear",
            of_rows=of_rows,
            to_projection=to_projection,
            signed=True,
            row_sum="any",
        )
