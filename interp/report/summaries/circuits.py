"""Text of results on circuits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows


def path_effects_summary(found: ResultRows) -> str:
    """Return the routes with the largest effects."""
    order = np.argsort(-np.abs(found.score), kind="stable")[:3]
    first = ", ".join(f"{found.route[i]} {found.share[i]:.2f}" for i in order)
    return (
        f"PathEffects({found.task} in {found.model}, MLPs {found.mlps}: {len(found)} routes,"
        f" first {first} of the gap)"
    )


def patching_map_summary(found: ResultRows) -> str:
    """Return the places with the largest effects."""
    order = np.argsort(-np.abs(found.score), kind="stable")[:3]
    first = ", ".join(
        f"layer {found.layer[i]} {found.place[i]} {found.share[i]:.2f}" for i in order
    )
    return (
        f"PatchingMap({found.task} in {found.model}, {found.site} {found.direction}:"
        f" {len(found)} places, first {first} of the gap)"
    )


def causal_traces_summary(found: ResultRows) -> str:
    """Return the effect of the noise, and the places with the largest gains."""
    first = ", ".join(
        f"layer {row['layer']} {row['place']} {row['score']:+.3f}" for row in found.top(3)
    )
    return (
        f"CausalTraces({found.model}, {found.site} restored, {found.corrupt} corrupted:"
        f" {len(found.clean)} facts, probability {found.clean.mean():.3f} to"
        f" {found.corrupted.mean():.3f} by noise; largest gains {first})"
    )
