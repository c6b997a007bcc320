"""Activations that are sums of few known directions out of more than there are dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError


@dataclass(frozen=True)
class Superposed:
    """Rows with their true features.

    Args:
        rows: the activations, codes times directions plus noise.
        directions: the features, of norm 1.
        codes: how much of each feature is in each row; 0 for most.
    """

    rows: Float[Tensor, "row width"]
    directions: Float[Tensor, "feature width"]
    codes: Float[Tensor, "row feature"]


def superposed(
    *,
    features: int = 48,
    width: int = 32,
    active: float = 1.5,
    rows: int = 8192,
    noise: float = 0.02,
    seed: int = 0,
) -> Superposed:
    """Draw rows that hold few of many random directions."""
    if min(features, width, rows) < 1 or not 0 < active <= features or noise < 0:
        raise OptionError(
            f"features={features}, width={width}, rows={rows}, active={active}, noise={noise}: "
            "counts must be at least 1, active at most the features, and the noise not negative"
        )
    generator = torch.Generator().manual_seed(seed)
    present = torch.rand(rows, features, generator=generator) < active / features
    codes = present * (0.5 + torch.rand(rows, features, generator=generator))
    # drawn last, so that no dictionary of the same seed starts with these directions
    directions = torch.randn(features, width, generator=generator)
    directions = directions / directions.norm(dim=1, keepdim=True)
    rows_made = codes @ directions + noise * torch.randn(rows, width, generator=generator)
    return Superposed(rows_made, directions, codes)
