"""Text of results on refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.core.result_rows import ResultRows


def sahara_summary(found: ResultRows) -> str:
    """Return the heads that the search took, with the angle after each."""
    at = [found.labels.index(head) for head in found.taken]
    angles = [float(found.angles[step, i]) for step, i in enumerate(at)]
    path = ", ".join(f"{head} {x:.3g}°" for head, x in zip(found.taken, angles, strict=True))
    return f"Sahara ({found.form}): {path}; singular values {found.gap:.3g} apart"


def direction_search_summary(found: ResultRows) -> str:
    """Return what the model declines, what each filter stops, and the direction chosen."""
    from interp.safety.selection import stopped

    lines = [
        f"declined: {found.refused[0]:.0%} of harmful, {found.refused[1]:.0%} of harmless",
        f"prompts: {', '.join(f'{n} {what}' for what, n in found.used.items())}",
        f"refusal log odds: harmful {found.clean[0]:+.3g}, harmless {found.clean[1]:+.3g}",
        f"filters: of {len(found)} candidates {stopped(found)}",
    ]
    best = next((row for row in found if row["chosen"]), None)
    if best is None:
        return "\n".join([*lines, "chosen: none passes"])
    lines.append(
        f"chosen: layer {best['layer']}, position {best['position']}: removed, harmful "
        f"{best['ablated']:+.3g}; added, harmless {best['added']:+.3g}; KL on harmless "
        f"{best['kl']:.3g}"
    )
    return "\n".join(lines)


def ships_summary(found: ResultRows) -> str:
    """Return the heads of the largest effects on harmful prompts, with those on harmless ones."""
    first = [(row["player"], row["score"]) for row in found.harmful.top(5)]
    best = ", ".join(f"{label} {x:.3g}" for label, x in first)
    text = f"SHIPS on {found.harmful.per_prompt.shape[1]} harmful prompts, nats: {best}"
    if found.harmless is not None:
        labels = list(found.harmless.players.labels)
        same = ", ".join(
            f"{label} {found.harmless.score[labels.index(label)]:.3g}" for label, _ in first
        )
        text += f"; the same heads on harmless prompts: {same}"
    return text


def safety_curves_summary(found: ResultRows) -> str:
    """Return the value of both tasks at each number of heads, with the band of random heads."""
    lines = []
    for curve in (found.safety, found.harmless):
        band = curve.band()
        steps = ", ".join(
            f"{count}: {value:.3g} [{low:.3g}, {high:.3g}]"
            for count, value, (low, high) in zip(curve.counts, curve.value, band, strict=True)
        )
        lines.append(f"{curve.made['task']} ({curve.unit}), heads ablated: value [random] {steps}")
    return "\n".join(lines)


def safety_curves_figure(found: ResultRows) -> go.Figure:
    """Draw both curves side by side, each with its interval and its band of random heads."""
    from plotly.subplots import make_subplots

    from interp.draw.page import text

    both = (found.safety, found.harmless)
    titles = [text(f"{c.made['task']} ({c.unit})") for c in both]
    figure = make_subplots(rows=1, cols=2, subplot_titles=titles)
    for column, curve in enumerate(both, start=1):
        traces: Any = curve.plot().data
        for trace in traces:
            trace.showlegend = bool(trace.showlegend is not False and column == 1)
            figure.add_trace(trace, row=1, col=column)
        figure.add_hline(
            y=curve.clean,
            line={"color": "#000000", "dash": "dot", "width": 1},
            row=1,
            col=column,  # type: ignore[arg-type]
        )
        figure.update_xaxes(title_text="heads ablated", row=1, col=column)
    heads = ", ".join(found.removed)
    figure.update_layout(
        template="plotly_white",
        title=text(f"Heads ablated in order: {heads}"),
        height=480,
        legend={"orientation": "h", "y": -0.2},
    )
    return figure


def safety_study_summary(found: ResultRows) -> str:
    """Return a line for the ablation of the top heads, and for each part of the study."""
    from interp.safety.curves import damage_at, outside_band

    curves, k = found.curves, len(found.curves.removed)
    (effect, damage), beyond = (
        [of(curve, k) for curve in (curves.safety, curves.harmless)]
        for of in (damage_at, outside_band)
    )
    values = ["outside" if one else "within" for one in beyond]
    return "\n".join(
        [
            f"{found.facts['model']}: top {k} heads by {found.ranking} ablated"
            f" ({' '.join(curves.removed)}): refusal {effect:.3g} nats lower ({values[0]} the band"
            f" of random heads), harmless loss {damage:+.3g} nats/token ({values[1]} theirs)",
            *(f"  {line}" for line in str(found.search).splitlines()),
            f"  projected on {found.direction}",
            *(f"  spread of {name}: {one}" for name, one in found.spread.items()),
            f"  {found.ships}",
            *(f"  {one}" for one in found.sahara),
        ]
    )


def safety_study_figure(found: ResultRows) -> go.Figure:
    """Draw both tasks over the number of ablated heads."""
    return safety_curves_figure(found.curves)
