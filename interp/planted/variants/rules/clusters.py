"""Routed clusters (Roy et al. 2020, routing transformer, arXiv:2003.05997): keys of one cluster.

Queries and keys belong to the nearest of 4 learned centres of each head; a row also sees itself.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from interp.planted.variants.rule import Chosen, Heads, Projected, Rule, RuleShape, SeenBlock


class ClustersRule(Rule):
    """The mask depends on the content."""

    n_clusters = 4

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.centres = nn.Parameter(torch.randn(shape.n_heads, self.n_clusters, shape.d_head))

    def _nearest(self, x: Heads) -> Tensor:
        return (F.normalize(x, dim=-1) @ F.normalize(self.centres, dim=-1).mT).argmax(-1)

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep keys of the row's cluster, and the row itself."""
        same = self._nearest(given.q[:, :, rows])[..., None] == self._nearest(given.k)[:, :, None]
        return (same & super().seen(given, rows)) | (given.every == rows[:, None])
