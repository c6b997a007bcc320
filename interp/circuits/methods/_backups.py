"""Pairs of heads of which one matters only while the other is patched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.standard_errors import standard_error
from interp.core.ties import ordered_by, reaches

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask

LARGE = 0.1  # smallest effect of a primary node, as a share of the largest effect


def stand_ins(
    effect: np.ndarray, heads: list[str], first: list[str], least: float, task: ContrastTask
) -> list[dict[str, Any]]:
    """Find heads that matter while another is patched, and less than half as much otherwise."""
    mean, rows = effect.mean(2), []
    for b, other in enumerate(heads):
        for a, one in enumerate(heads):
            if a == b or (one not in first and other not in first):
                continue
            now, alone = mean[a, b] - mean[b, b], mean[a, a]
            if reaches(abs(now), least) and not reaches(2 * abs(alone), abs(now)):
                each = effect[a, b] - effect[b, b]
                sem = float(standard_error(each[None], task.clusters)[0])
                rows.append(
                    {
                        "head": one,
                        "for": other,
                        "alone": float(alone),
                        "without_it": float(now),
                        "sem": sem,
                    }
                )
    return ordered_by(rows, lambda row: abs(row["without_it"]))
