"""Focused linear (Han et al. 2023, FLatten, arXiv:2308.00442): features relu(x)^3 of equal norm.

phi(x) = |r| / |r^3| r^3 with r = relu(x) + 1e-6; the convolution of the values is left out.
"""

from __future__ import annotations

from torch import Tensor

from interp.planted.variants.feature_rule import FeatureRule
from interp.planted.variants.rule import Heads, Projected

POWER = 3


class FocusedLinearRule(FeatureRule):
    """A power turns features towards their largest, so that linear attention is sharper."""

    least = 1e-30

    def feature(self, x: Heads, given: Projected) -> Tensor:
        """Return the power, scaled back to the norm."""
        r = x.relu() + 1e-6
        sharp = (r / r.amax(-1, keepdim=True)) ** POWER
        return sharp * (r.norm(dim=-1, keepdim=True) / sharp.norm(dim=-1, keepdim=True))
