"""Columns of effects on pairs of prompts, with their share of clean minus corrupted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from interp.core.standard_errors import standard_error
from interp.core.statistics import ratio_intervals

Array = np.ndarray


def gap_columns(
    effects: Float[Array, "row pair"], gap: Float[Array, " pair"], clusters: Sequence[str] | None
) -> dict[str, Float[Array, " row"]]:
    """Return the columns score, sem, share, share_low and share_high (95 % interval)."""
    score = effects.mean(1)
    low, high = ratio_intervals(effects, gap, clusters=clusters).T
    return {
        "score": score,
        "sem": standard_error(effects, clusters),
        "share": score / gap.mean(),
        "share_low": low,
        "share_high": high,
    }
