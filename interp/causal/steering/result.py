"""Rows of a dose curve: a task and the loss on plain text at every factor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.clusters import cluster_count
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.draw.parts import FoundPart, between, plain_value, result_part

if TYPE_CHECKING:
    import plotly.graph_objects as go

Array = np.ndarray
Tasks = tuple[tuple[str, str, bool], tuple[str, str, bool]]
"""Name, unit and direction (True: higher is better) of the task and of the harmless damage."""


def dose_rows(
    model: str,
    steered: Sequence[str],
    how: str,
    factors: Sequence[float],
    tasks: Tasks,
    values: Sequence[Float[Array, "factor prompt"]],
    random: Sequence[Float[Array, "set factor prompt"]],
    clusters: Sequence[tuple[str, ...] | None],
    made: Mapping[str, Any],
) -> ResultRows:
    """Return a row per task and factor; see `steer` for the columns."""
    rows = [
        {
            "model": model,
            "task": name,
            "factor": factor,
            "score": float(x[at].mean()),
            "sem": float(standard_error(x[at][None], labels)[0]),
            "n": x.shape[1],
            "clusters": cluster_count(x.shape[1], labels),
            "null": float(other.mean(2)[:, at].mean()) if len(other) else np.nan,
            "unit": unit,
            "heads": " ".join(steered),
            "metric": f"steer_{how}",
        }
        for (name, unit, _), x, other, labels in zip(tasks, values, random, clusters, strict=True)
        for at, factor in enumerate(factors)
    ]
    facts = {
        "steered": tuple(steered),
        "how": how,
        "unchanged": 1.0 if how == "scale" else 0.0,
        "tasks": tasks,
        "values": tuple(values),
        "random": tuple(random),
        "task_clusters": tuple(clusters),
    }
    return ResultRows(
        "DoseCurve",
        {name: [row[name] for row in rows] for name in rows[0]},
        ("task", "factor"),
        made,
        facts,
        why_no_per_prompt="the two tasks have different prompts; see `values`",
    )


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


def plot_doses(curve: ResultRows) -> go.Figure:
    """Plot both measures against the factor, with 95 % intervals and the random sets in grey."""
    from plotly.subplots import make_subplots

    from interp.draw.charts import filled_between
    from interp.draw.colours import COLOURS, GREY, faded
    from interp.draw.page import text

    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    frame = curve.to_pandas()
    for k, (task, unit, higher) in enumerate(curve.tasks):
        rows = frame.loc[(frame["task"] == task).to_numpy()].sort_values(by="factor")
        x, null, low, high, score = (
            rows[c].to_numpy(float) for c in ("factor", "null", "low", "high", "score")
        )
        place: dict[str, Any] = {"row": k + 1, "col": 1}
        if not np.isnan(null).any():
            figure.add_scatter(
                x=x,
                y=null,
                mode="lines",
                name="random sets, mean",
                showlegend=k == 0,
                line={"color": GREY, "dash": "dot"},
                **place,
            )
        if not np.isnan(low).any():
            filled_between(
                figure,
                x,
                low,
                high,
                fillcolor=faded(COLOURS[k], 0.18),
                name="95 % interval",
                showlegend=False,
                **place,
            )
        figure.add_scatter(
            x=x,
            y=score,
            mode="lines+markers",
            name=text(task),
            line={"color": COLOURS[k], "width": 2.5},
            hovertemplate="x %{x}: %{y:.4g}<extra></extra>",
            **place,
        )
        title = text(f"{task} ({unit}), {'higher' if higher else 'lower'} is better")
        figure.update_yaxes(title={"text": title, "font": {"size": 12}}, **place)
    figure.add_vline(x=curve.unchanged, line={"color": "#000000", "dash": "dot", "width": 1})
    what = "factor of their output" if curve.how == "scale" else "coefficient of what is added"
    figure.update_xaxes(title={"text": what}, row=2, col=1)
    figure.update_layout(
        template="plotly_white",
        height=640,
        font={"size": 14},
        title=text(f"{curve.model[0]}: {', '.join(curve.steered)} steered ({curve.how})"),
        legend={"orientation": "h", "y": -0.15},
    )
    return figure


def doses_part(found: ResultRows) -> FoundPart:
    """Return what steering some heads does to a task and to plain text, over the factors."""
    frame: Any = found.to_pandas()
    lines: list[Any] = []
    sentences = []
    for (task, unit, _), random in zip(found.tasks, found.random, strict=True):
        mine = frame.loc[(frame["task"] == task).to_numpy()]
        values = {
            name: [plain_value(x) for x in mine[name]]
            for name in ("factor", "score", "low", "high", "null")
        }
        lines.append(
            {
                "name": f"{task} ({unit})",
                "kind": "result",
                "x": values["factor"],
                "y": values["score"],
                "low": values["low"],
                "high": values["high"],
            }
        )
        if len(random):
            lines.append(
                {
                    "name": f"{task}, random heads",
                    "kind": "random",
                    "x": values["factor"],
                    "y": values["null"],
                    "low": [],
                    "high": [],
                }
            )
        factors = {found.factor.min(), found.unchanged, found.factor.max()}
        ends = mine.loc[mine["factor"].isin(sorted(factors)).to_numpy()].sort_values(by="factor")
        sentences.append(
            f"{task}: "
            + ", ".join(
                f"{row['score']:.3g}{between(row['low'], row['high'])} at {row['factor']:g}"
                for row in ends.to_dict(orient="records")
            )
            + f" ({unit})"
        )
    what = "output times the factor" if found.how == "scale" else "a direction times the factor"
    names = ", ".join(found.steered)
    text = (
        f"{names}: {what}; 1 is the model itself. "
        if found.how == "scale"
        else (f"{names}: {what} is added; 0 is the model itself. ")
    )
    title, text = f"Steering {names}: {found.tasks[0][0]}", f"{text}{'; '.join(sentences)}."
    figure = {"draw": "curves", "x": "factor", "y": "task and loss", "lines": lines}
    return result_part(found, "steering", title, text, heads=found.steered, figure=figure)


present("DoseCurve", summary=dose_curve_summary, plot=plot_doses, part=doses_part)
