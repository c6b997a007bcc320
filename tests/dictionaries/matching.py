"""One-to-one matching of features with known directions, beside random directions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

RECOVERED = 0.9  # cosine above which a direction counts as recovered


@dataclass(frozen=True, eq=False)
class FeatureMatch:
    """Assignment of features to known directions with the largest sum of cosines (Hungarian).

    Args:
        feature: feature assigned to each direction.
        cosine: their cosine.
        null: the same cosines for as many random directions as features, per draw.
    """

    feature: Int[np.ndarray, " direction"]
    cosine: Float[np.ndarray, " direction"]
    null: Float[np.ndarray, "draw direction"]

    @property
    def recovered(self) -> float:
        """Share of the directions with a cosine above 0.9."""
        return float((self.cosine > RECOVERED).mean())

    @property
    def null_recovered(self) -> float:
        """The same for random directions, mean over draws."""
        return float((self.null > RECOVERED).mean())


def match_features(
    found: Float[Tensor, "feature width"],
    truth: Float[Tensor, "direction width"],
    *,
    n_random: int = 20,
    seed: int = 0,
) -> FeatureMatch:
    """Match features one to one with known directions."""
    feature, cosine = _assigned(found, truth)
    generator = torch.Generator().manual_seed(1_000_003 + seed)
    null = [
        _assigned(torch.randn(found.shape, generator=generator), truth)[1] for _ in range(n_random)
    ]
    return FeatureMatch(feature, cosine, np.stack(null))


def _assigned(found: Tensor, truth: Tensor) -> tuple[np.ndarray, np.ndarray]:
    from scipy.optimize import linear_sum_assignment

    a, b = (x.double() / x.double().norm(dim=1, keepdim=True) for x in (truth, found))
    cosines = (a @ b.T).numpy()
    direction, feature = linear_sum_assignment(-cosines)
    return feature, cosines[direction, feature]
