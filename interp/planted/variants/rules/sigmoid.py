"""Sigmoid (Ramapuram et al. 2024, arXiv:2409.04431): M[i, j] = sigmoid(s_ij - log n_i).

n_i is the number of visible keys; there is no normalisation, so a row can attend to nothing.
"""

from __future__ import annotations

import torch

from interp.planted.variants.rule import MapBlock, Rule, SeenBlock


class SigmoidRule(Rule):
    """Every key is weighted on its own."""

    row_sum = "any"

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Return the sigmoid of scores less the log of the number of keys."""
        number = seen.sum(-1, keepdim=True)
        return torch.sigmoid(scores - number.log()) * seen
