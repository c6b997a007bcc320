"""Positions that rows of cross attention attend to, on average."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from interp.heads.layer import LayerCall


def attended_positions(layer: LayerCall) -> Float[Tensor, "prompt head row"]:
    """Return the mean attended source position of every row, counted from 0."""
    positions = []
    for block in layer.blocks():
        keys = torch.arange(block.pattern.shape[-1], device=block.pattern.device)
        positions.append((block.pattern * keys).sum(-1))
    return torch.cat(positions, -1)
