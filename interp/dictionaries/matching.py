"""One-to-one matching of features with known directions, beside random directions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.errors import OptionError

RECOVERED = 0.9  # cosine above which a direction counts as recovered


@dataclass(frozen=True, eq=False)
class FeatureMatch:
    """Assignment of features to known directions with the largest sum of cosines (Hungarian).

    Args:
        feature: feature assigned to each direction.
        cosine: their cosine.
        null: the same cosines for as many random directions as features, per draw.
    """

    feature: Int[np.ndarray, " direction"] = field(repr=False)
    cosine: Float[np.ndarray, " direction"] = field(repr=False)
    null: Float[np.ndarray, "draw direction"] = field(repr=False)

    @property
    def recovered(self) -> float:
        """Share of the directions with a cosine above 0.9."""
        return float((self.cosine > RECOVERED).mean())

    @property
    def null_recovered(self) -> float:
        """The same for random directions, mean over draws."""
        return float((self.null > RECOVERED).mean())

    def __repr__(self) -> str:
        return (
            f"FeatureMatch({self.recovered:.0%} of {len(self.cosine)} directions recovered, mean "
            f"cosine {self.cosine.mean():.3f}; random directions {self.null_recovered:.0%}, "
            f"{self.null.mean():.3f})"
        )


def match_features(
    found: Float[Tensor, "feature width"],
    truth: Float[Tensor, "direction width"],
    *,
    n_random: int = 20,
    seed: int = 0,
) -> FeatureMatch:
    """Match features one to one with known directions."""
    if found.shape[1] != truth.shape[1] or len(found) < len(truth):
        raise OptionError(
            f"{len(found)} features of {found.shape[1]} entries cannot be matched one to one with "
            f"{len(truth)} directions of {truth.shape[1]}"
        )
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
