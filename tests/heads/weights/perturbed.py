"""Random gains and biases, so that folding a norm wrongly shows."""

from __future__ import annotations

import torch
from torch import nn


def perturb(module: nn.Module, seed: int = 0) -> nn.Module:
    """Random gains and biases for every norm; no two norms of a model alike."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for m in module.modules():
            if "norm" in type(m).__name__.lower():
                for x in m.parameters(recurse=False):
                    x.add_(0.4 * torch.rand(x.shape, generator=draw) - 0.1)
    return module
