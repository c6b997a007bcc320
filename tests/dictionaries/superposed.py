"""Activations that are sums of few known directions, and dictionaries trained on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from interp.dictionaries.activations import RowPair
from interp.dictionaries.dictionary import Dictionary
from interp.dictionaries.training_loop import checked_settings, fitted_dictionary


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
    generator = torch.Generator().manual_seed(seed)
    present = torch.rand(rows, features, generator=generator) < active / features
    codes = present * (0.5 + torch.rand(rows, features, generator=generator))
    # drawn last, so that no dictionary of the same seed starts with these directions
    directions = torch.randn(features, width, generator=generator)
    directions = directions / directions.norm(dim=1, keepdim=True)
    rows_made = codes @ directions + noise * torch.randn(rows, width, generator=generator)
    return Superposed(rows_made, directions, codes)


def fit_rows(
    rows: Float[Tensor, "row width"],
    *,
    architecture: str = "topk",
    d_sae: int,
    k: int = 8,
    sparsity: float | None = None,
    dead: Literal["auxk", "resample", "none"] = "auxk",
    dead_after: int = 100,
    steps: int = 1000,
    batch_rows: int = 512,
    rate: float = 2e-3,
    seed: int = 0,
) -> Dictionary:
    """Train a dictionary on given activations, without a model."""
    settings = checked_settings(
        architecture, dead, dead_after, steps, batch_rows, rate, sparsity, k, d_sae
    )
    rng = torch.Generator().manual_seed(seed)

    def batches() -> Iterator[RowPair]:
        while True:
            at = torch.randint(len(rows), (batch_rows,), generator=rng)
            yield rows[at], rows[at]

    width = rows.shape[1]
    fit = fitted_dictionary(
        batches(), architecture, (width, width, d_sae, k), settings, "rows", seed, None, False
    )
    return fit.trained.dictionary(*fit.scales, site="z", layer=0, about={"made_of": "rows"})
