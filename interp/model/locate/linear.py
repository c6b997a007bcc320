"""Extraction of the matrix of a linear module of any class."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


def linear_map(
    module: nn.Module, width: int
) -> tuple[Float[Tensor, "d_in d_out"], Float[Tensor, "d_out"] | None]:
    """Return matrix and bias of `x -> x @ matrix + bias`, for inputs of `width`."""
    weight: Any = module.weight
    bias = getattr(module, "bias", None)
    if not any(True for _ in module.children()) and weight.is_floating_point():
        if isinstance(module, nn.Linear):
            return weight.detach().T, None if bias is None else bias.detach()
        if type(module).__name__ == "Conv1D":
            return weight.detach(), None if bias is None else bias.detach()
    # Quantised matrices and adapters: unit vectors determine a linear map.
    floating = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    eye = torch.eye(width, dtype=floating, device=weight.device)
    with torch.no_grad():
        offset = module(torch.zeros_like(eye[:1]))
        return module(eye) - offset, offset[0]
