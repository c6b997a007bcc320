"""Keys that open a cluster as they arrive."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import OptionError


def opened(
    k: Float[Tensor, "prompt head key d_head"], radius: float
) -> Bool[Tensor, "prompt head key"]:
    """Return which keys are further than the radius from all representatives before them."""
    if radius <= 0:
        raise OptionError(f"radius={radius}: give a positive share of the spread of the keys")
    centred = k - k.mean(2, keepdim=True)
    spread = centred.square().sum(-1).mean(-1, keepdim=True).sqrt()
    representative = torch.zeros(k.shape[:3], dtype=torch.bool, device=k.device)
    representative[..., 0] = True
    for t in range(1, k.shape[2]):
        apart = (k[:, :, :t] - k[:, :, t : t + 1]).norm(dim=-1)
        near = (apart <= radius * spread) & representative[..., :t]
        representative[..., t] = ~near.any(-1)
    return representative
