"""Inverse distance (McCarter 2023, arXiv:2310.18805): 1 / (|q_i - k_j|^2 + e), normalised."""

from __future__ import annotations

from interp.planted.variants.rule import Chosen, MapBlock, Projected, Rule

LEAST = 1e-3  # e


class InverseDistanceRule(Rule):
    """A key that equals the query takes almost all of the row."""

    def scores(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return minus the log of squared distances."""
        gap = given.q[:, :, rows, None] - given.k[:, :, None]
        return -(gap.square().sum(-1) + LEAST).log()
