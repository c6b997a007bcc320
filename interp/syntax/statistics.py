"""Shares over sentences: intervals and tests that draw whole sentences, not words."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from interp.syntax.result import Interval

Array = np.ndarray
DRAWS = 5000
LEVEL = 0.95


class Bootstrap:
    """The same draws of sentences for everything that is compared."""

    def __init__(self, n_sentences: int, *, draws: int = DRAWS, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        even = np.full(n_sentences, 1 / max(n_sentences, 1))
        self.weights = rng.multinomial(n_sentences, even, size=draws).astype(np.float64)

    def shares(
        self, found: Float[Array, " sentence"], total: Float[Array, " sentence"]
    ) -> Float[Array, " draw"]:
        """The share in every draw; NaN where a draw has none of what is counted."""
        with np.errstate(invalid="ignore"):
            return (self.weights @ found) / (self.weights @ total)

    def interval(self, found: Array, total: Array) -> Interval:
        """The middle 95 % of the draws."""
        return middle(self.shares(found, total))

    def gain(self, found: Array, other: Array, total: Array) -> tuple[Interval, float]:
        """The interval of the difference of two shares, and its two-sided p value.

        The p value is never below that of all signs alike, 2 ** (1 - n) with n sentences that
        differ: draws of a few sentences that all agree would say more than these can.
        """
        drawn = self.shares(found - other, total)
        drawn = drawn[np.isfinite(drawn)]
        if not len(drawn):
            return (np.nan, np.nan), 1.0
        tail = 1 + min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
        least = 2.0 ** (1 - np.count_nonzero(found - other))
        return middle(drawn), float(min(1.0, max(least, 2 * tail / (len(drawn) + 1))))


def middle(drawn: Float[Array, " draw"]) -> Interval:
    """The middle 95 % of numbers, NaN left out."""
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn):
        return np.nan, np.nan
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def per_sentence(
    values: Array, sentence: Int[Array, " dependent"], n_sentences: int
) -> Float[Array, " sentence"]:
    """Sums of values by the sentence they are from."""
    return np.bincount(sentence, weights=values.astype(np.float64), minlength=n_sentences)
