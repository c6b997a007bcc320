"""Text of results on interventions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.core.result_rows import ResultRows


def tucker_loss_summary(found: ResultRows) -> str:
    """Return the loss by share of the directions kept."""
    cells = zip(found.share, found.score, found.null, strict=True)
    said = [f"{share:g}: {score:.3g} (random {null:.3g})" for share, score, null in cells]
    return f"TuckerLoss({', '.join(said)} {found.unit})"


def head_responsibilities_summary(found: ResultRows) -> str:
    """Return the information of the responsibilities."""
    return (
        f"HeadResponsibilities({len(found)} heads, information {found.information:.3g} nats, "
        f"shuffled {found.information_null:.3g}, p {found.information_p:.3g})"
    )


def head_aggregation_summary(found: ResultRows) -> str:
    """Return the task's value of the sums that are not of one named head."""
    score = dict(zip(found.part, found.score, strict=True))
    names = ("none", "best alone", "uniform average", "learned weights", "full")
    said = ", ".join(f"{name} {score[name]:.4g}" for name in names if name in score)
    return f"HeadAggregation({said} {found.unit}, {found.n} held-out prompts)"


def dose_curve_summary(found: ResultRows) -> str:
    """Return both tasks at every factor."""
    frame = found.to_pandas()
    lines = [f"{found.model[0]}: {', '.join(found.steered)} ({found.how})"]
    for task, unit, higher in found.tasks:
        lines.append(f"  {task} ({unit}, {'higher' if higher else 'lower'} is better)")
        mine = frame.loc[(frame["task"] == task).to_numpy()]
        for row in mine.to_dict(orient="records"):
            ends = "" if np.isnan(row["low"]) else f" [{row['low']:.3g}, {row['high']:.3g}]"
            null = "" if np.isnan(row["null"]) else f", random sets {row['null']:.3g}"
            same = "  (the model itself)" if row["factor"] == found.unchanged else ""
            lines.append(f"    x {row['factor']:>5g}  {row['score']:.3g}{ends}{null}{same}")
    return "\n".join(lines)


def interactions_figure(found: ResultRows) -> go.Figure:
    """Draw a heat map, player by player, blue above zero and orange below."""
    import plotly.graph_objects as go

    from interp.draw.colours import palette

    grid = np.full((len(found.players),) * 2, np.nan, dtype=np.float32)
    for (i, j), score in zip(found.pairs, found.score, strict=True):
        grid[i, j] = grid[j, i] = score
    played = sorted({int(i) for pair in found.pairs for i in pair})
    labels = [found.players[i] for i in played]
    size = float(np.abs(found.score).max(initial=0.0)) or 1.0
    unit, index = (next(iter(found.columns[name]), "") for name in ("unit", "index"))
    figure = go.Figure(
        go.Heatmap(
            x=labels,
            y=labels,
            z=grid[np.ix_(played, played)],
            zmin=-size,
            zmax=size,
            colorscale=palette(True),
            colorbar={"title": {"text": unit}},
        )
    )
    figure.update_layout(template="plotly_white", title=f"{index} interactions")
    figure.update_yaxes(autorange="reversed")
    return figure
