"""Grouped positions (Burchi and Vielzeuf 2021, Efficient Conformer, arXiv:2109.01163).

Pairs of positions are one token of twice the width: M[2 a + o, 2 b + o] = softmax_b(q_a . k_b), and
0 between unequal o. It sees later positions; an odd prompt is padded with zeros.
"""

from __future__ import annotations

from torch.nn import functional as F

from interp.planted.variants.rule import Chosen, Heads, MapBlock, Projected, Rule, SeenBlock

SIZE = 2


class GroupedPositionsRule(Rule):
    """A map of a quarter of the entries, spread over positions of one place in their group."""

    row_sum = "at most 1"
    causal = False

    def seen(self, given: Projected, rows: Chosen) -> SeenBlock:
        """Keep positions of the row's place in a group."""
        return rows[:, None] % SIZE == given.every % SIZE

    def _grouped(self, x: Heads) -> Heads:
        short = -x.shape[2] % SIZE
        return F.pad(x, (0, 0, 0, short)).unflatten(2, (-1, SIZE)).flatten(3)

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Attend between groups, and spread the weights."""
        q, k = self._grouped(given.q), self._grouped(given.k)
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        found = weights[:, :, rows // SIZE][..., given.every // SIZE]
        return found * self.seen(given, rows)
