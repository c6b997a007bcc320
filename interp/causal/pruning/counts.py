"""Numbers of removed players at which a pruning curve is measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interp.core.errors import OptionError

FINE = 24  # default steps of a ranking
COARSE = 6  # of random orders, if there are more players than steps of the ranking


def removal_counts(steps: int | Sequence[int] | None, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts of the ranking, and those of random orders and bootstrap draws."""
    if steps is None and n > FINE:
        counts, _ = removal_counts(FINE, n)
        return counts, counts[:: FINE // COARSE]
    if steps is None or isinstance(steps, int):
        steps = n if steps is None else steps
        if steps < 1:
            raise OptionError(f"steps={steps}; remove at least one player (1 or more)")
        counts = np.unique(np.rint(np.linspace(0, n, steps + 1)).astype(np.int64))
        return counts, counts
    counts = sorted({0, *(int(x) for x in steps)})
    if counts == [0]:
        raise OptionError("steps do not remove any player; give counts of 1 or more")
    if counts[0] < 0 or counts[-1] > n:
        wrong = counts[0] if counts[0] < 0 else counts[-1]
        raise OptionError(f"steps contain {wrong}; counts must lie between 0 and {n} players")
    return np.array(counts, dtype=np.int64), np.array(counts, dtype=np.int64)
