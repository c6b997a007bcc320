"""Fastmax (Gerami et al. 2024, FAST, arXiv:2402.07901): 1 + s + s^2/2 of standardised q and k.

s = q . k without a scale, where q and k have mean 0 and variance 1 over their features.
"""

from __future__ import annotations

from interp.planted.variants.rule import Heads, MapBlock, Projected, Rule, SeenBlock, Stream


class FastmaxRule(Rule):
    """A polynomial kernel, which factors into features."""

    def prepare(self, x: Stream) -> Projected:
        """Standardise queries and keys; the root of d cancels the scale of the scores."""
        given = super().prepare(x)
        given.q, given.k = (standard(t) for t in (given.q, given.k))
        given.q = given.q * given.q.shape[-1] ** 0.5
        return given

    def weights(self, scores: MapBlock, seen: SeenBlock) -> MapBlock:
        """Normalise the polynomial over visible keys."""
        found = (1 + scores + scores.square() / 2) * seen
        return found / found.sum(-1, keepdim=True)


def standard(x: Heads) -> Heads:
    """Return features of mean 0 and variance 1."""
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
