"""Text of results on circuits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from interp.core.ties import ordered

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.core.result_rows import ResultRows


def path_effects_summary(found: ResultRows) -> str:
    """Return the routes with the largest effects."""
    order = ordered(np.abs(found.score))[:3]
    first = ", ".join(f"{found.route[i]} {found.share[i]:.2f}" for i in order)
    return (
        f"PathEffects({found.task} in {found.model}, MLPs {found.mlps}: {len(found)} routes,"
        f" first {first} of the gap)"
    )


def patching_map_summary(found: ResultRows) -> str:
    """Return the places with the largest effects."""
    order = ordered(np.abs(found.score))[:3]
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


def head_loadings_summary(found: ResultRows) -> str:
    """Return the number of parts of the heads' outputs, and the largest."""
    best = "".join(
        f", largest {r['writer']} at {r['source']} {r['score']:+.3g}"
        for r in found.top(1).wide().to_dict("records")
    )
    return (
        f"HeadLoadings({', '.join(found.errors)} of {found.facts['model']} on {found.direction}: "
        f"{len(found)} parts over {found.per_prompt.shape[1]} prompts{best} logits)"
    )


def share_check_summary(found: ResultRows) -> str:
    """Return the correlations of predicted and measured changes."""
    r, low, high = found.correlations["attention"]
    s, below, above = found.correlations["score"]
    return (
        f"ShareCheck({found.facts['model']}: {len(found)} writers removed from one side, "
        f"{int((~np.isnan(found.per_prompt)).any(0).sum())} held-out prompts; correlation of "
        f"predicted and measured change: score {s:.3f} ({below:.3f} to {above:.3f}), "
        f"attention {r:.3f} ({low:.3f} to {high:.3f}))"
    )


def signals_summary(found: ResultRows) -> str:
    """Return the number of firings and heads, and the median number of slices of a signal."""
    heads = len({s.name for s in found.found})
    middle = np.median(found.slices) if len(found) else float("nan")
    return (
        f"Signals({found.facts['model']}: {len(found)} firings of {heads} heads, median {middle:g} "
        f"of {found.d_head} slices by {found.measure})"
    )


def signals_figure(found: ResultRows, side: str = "k") -> go.Figure:
    """Draw a heat map of the writers that make each head attend, on one side."""
    from interp.circuits.query_key_signals import writer_shares
    from interp.draw.charts import signed_map

    what = "queries" if side == "q" else "keys"
    title = f"Writers of what the {what} of each head read, where it fires"
    return signed_map(writer_shares(found, side), title=title, unit="share").update_layout(
        xaxis={"title": "written by"}, yaxis={"title": "head that fires", "autorange": "reversed"}
    )
