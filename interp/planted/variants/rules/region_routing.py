"""Region routing (Zhu et al. 2023, BiFormer, arXiv:2303.08810): first 2 regions, then their tokens.

Regions are 4 positions; a region's mean query chooses the 2 regions of the largest products with
their mean keys. It sees later positions.
"""

from __future__ import annotations

import torch

from interp.planted.variants.rule import Chosen, Heads, Projected, Rule, SeenBlock, among_largest

SIZE, KEPT = 4, 2


class RegionRoutingRule(Rule):
    """Coarse attention between regions decides where fine attention looks."""

    causal = False

    def _means(self, x: Heads) -> Heads:
        return torch.stack([part.mean(2) for part in x.split(SIZE, 2)], 2)

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep keys of the regions that the row's region chose."""
        affinity = self._means(given.q) @ self._means(given.k).mT
        chosen = among_largest(affinity, KEPT)
        return chosen[:, :, rows // SIZE][..., given.every // SIZE]
