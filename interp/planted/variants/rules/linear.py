"""Linear attention (Katharopoulos et al. 2020, arXiv:2006.16236): features phi(x) = elu(x) + 1.

M[i, j] = phi(q_i) . phi(k_j) / sum over visible l of phi(q_i) . phi(k_l).
"""

from __future__ import annotations

from torch.nn import functional as F

from interp.planted.variants.feature_rule import FeatureRule
from interp.planted.variants.rule import Heads, Projected


class LinearRule(FeatureRule):
    """Positive features, normalised."""

    def feature(self, x: Heads, given: Projected) -> Heads:
        """Return elu(x) + 1."""
        return F.elu(x) + 1
