"""Flow conservation (Wu et al. 2022, Flowformer, arXiv:2202.06258): competition and allocation.

M_ij = sigmoid(a_i) phi(q_i) . phi(k_j) / I_i n softmax_j(b_j), phi = sigmoid; I_i and O_j are the
flows into i and out of j, a_i and b_j those after the others are set to 1. It sees later positions.
"""

from __future__ import annotations

from torch import Tensor

from interp.planted.variants.rule import Chosen, Heads, MapBlock, Projected, Rule


class FlowConservationRule(Rule):
    """Keys compete for what they send, and rows for what they receive."""

    row_sum = "any"
    causal = False

    def _flows(self, given: Projected) -> tuple[Heads, Heads, Tensor, Tensor]:
        """Return features of queries over inflow, of keys, competition and allocation."""
        q, k = given.q.sigmoid(), given.k.sigmoid()
        into = (q * k.sum(2, keepdim=True)).sum(-1, keepdim=True)
        out = (k * q.sum(2, keepdim=True)).sum(-1, keepdim=True)
        kept_in = (q * (k / out).sum(2, keepdim=True)).sum(-1, keepdim=True)
        kept_out = (k * (q / into).sum(2, keepdim=True)).sum(-1, keepdim=True)
        return q / into, k, kept_out.softmax(2) * k.shape[2], kept_in.sigmoid()

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return products between competition and allocation."""
        q, k, competition, allocation = self._flows(given)
        return allocation[:, :, rows] * (q[:, :, rows] @ k.mT) * competition.mT

    def mix(self, given: Projected) -> Heads:
        """Sum values per feature first."""
        q, k, competition, allocation = self._flows(given)
        return allocation * (q @ (k.mT @ (competition * given.v)))
