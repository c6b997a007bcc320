"""cosFormer (Qin et al. 2022, arXiv:2202.08791): relu products times a cosine.

M[i, j] is relu(q_i) . relu(k_j) cos(pi (i - j) / 2n), normalised; n is the longest sequence.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from interp.planted.variants.feature_rule import FeatureRule
from interp.planted.variants.rule import Heads, Projected


class CosformerRule(FeatureRule):
    """Rectified features, weighted by nearness: the cosine of a difference splits in two."""

    def feature(self, x: Heads, given: Projected) -> Tensor:
        """Return rectified features times cosine and sine of their place."""
        angle = math.pi / 2 * given.every[:, None].to(x.dtype) / self.shape.length
        return torch.cat([x.relu() * angle.cos(), x.relu() * angle.sin()], -1)
