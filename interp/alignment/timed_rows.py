"""Cross attention of the tokens of one recording, the times found in it, and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp.alignment.warping import first_frames

Array = np.ndarray
_CELLS = 4_000_000  # of the matrices that are in memory together


@dataclass(frozen=True, eq=False)
class TimedRows:
    """Cross attention of the tokens of one recording, and the gold start of each.

    Args:
        weights: attention of every head, standardised and smoothed (`smoothed_weights`).
        known: start of each token in seconds, NaN where it is not known.
        tokens: number of rows that stand for tokens of the sound; a last one may be the end.
    """

    weights: Float[Array, "head token frame"]
    known: Float[Array, " token"]
    tokens: int

    def starts(self, sets: Sequence[Sequence[int]]) -> Int[Array, "set token"]:
        """Return the first frame of each token, by some sets of heads."""
        return first_frames(-self._means(sets))

    def errors(self, sets: Sequence[Sequence[int]], seconds: float) -> Float[Array, " set"]:
        """Return the mean distance of the starts to the known ones, in seconds."""
        return self._error(self.starts(sets) * seconds)

    def even_error(self, seconds: float) -> float:
        """Return the error of tokens that are spaced evenly over the frames."""
        return float(self._error(self.even(seconds)))

    def even(self, seconds: float) -> Float[Array, " token"]:
        """Return the starts of tokens that are spaced evenly over the frames, in seconds."""
        rows, frames = self.weights.shape[1:]
        return np.arange(rows) * frames * seconds / self.tokens

    def shuffled_errors(
        self,
        sets: Sequence[Sequence[int]],
        seconds: float,
        draws: int,
        rng: np.random.Generator,
    ) -> Float[Array, "set draw"]:
        """Return the errors with the token rows of the attention in random order."""
        means = self._means(sets)
        orders = np.stack([rng.permutation(means.shape[1]) for _ in range(draws)])
        size = max(1, _CELLS // means[0].size)
        blocks = [orders[at : at + size] for at in range(0, draws, size)]
        frames = [[first_frames(-mean[block]) for block in blocks] for mean in means]
        return self._error(np.stack([np.concatenate(x) for x in frames]) * seconds)

    def _means(self, sets: Sequence[Sequence[int]]) -> Float[Array, "set token frame"]:
        return np.stack([self.weights[list(which)].mean(0) for which in sets])

    def _error(self, starts: Float[Array, "*x token"]) -> Float[Array, "*x"]:
        return np.nanmean(np.abs(starts - self.known), axis=-1)
