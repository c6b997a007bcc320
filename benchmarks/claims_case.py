"""One measured claim or interval of claims.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class Case:
    """A claim, or an interval, and how to draw data on which it is judged.

    Args:
        call: the public function.
        claim: what is called, or the interval.
        nothing: the data without the effect, or the truth of the interval.
        draw: from a seed, whether each claim was made, or whether each interval holds the truth.
        kind: "claim" or "interval".
        share: draws of this case, relative to those of cheap ones.
        why: the reason of a rate that is not the nominal one, where it is known.
    """

    call: str
    claim: str
    nothing: str
    draw: Callable[[int], Any]
    kind: Literal["claim", "interval"] = "claim"
    share: float = 1.0
    why: str = ""


def inside(low: Any, high: Any, truth: Any) -> np.ndarray:
    """Return 1 where an interval holds the truth, and NaN where there is none."""
    low, high, truth = (np.asarray(x, dtype=float) for x in (low, high, truth))
    held = ((low <= truth) & (truth <= high)).astype(float)
    return np.where(np.isfinite(low) & np.isfinite(high) & np.isfinite(truth), held, np.nan)
