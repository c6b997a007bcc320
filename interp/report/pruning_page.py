"""Figures, folder and page of pruning curves, with intervals over the band of random orders."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.causal.pruning.result import PruningCurve
from interp.core.csv_rows import csv_text
from interp.core.errors import OptionError, StoreError
from interp.core.files import set_aside, write_atomically
from interp.draw.charts import filled_between
from interp.draw.colours import BAND, COLOURS, DASHES, GREY, faded
from interp.draw.figure import svg
from interp.draw.page import text
from interp.report.atlas.single import pruning_page

if TYPE_CHECKING:
    import plotly.graph_objects as go

_SAME = ("model_id", "content_hash", "task_hash", "kind", "players", "always_out")


def plot_curve(curve: PruningCurve) -> go.Figure:
    """Plot one curve."""
    return plot_curves([curve])


def plot_curves(curves: Sequence[PruningCurve], *, title: str | None = None) -> go.Figure:
    """Plot several pruning curves of one model and task in one figure.

    Lines are means over prompts with bootstrap intervals at 95 %; dotted lines are the same on
    held-out prompts, if the curve was cross-fitted. The grey band holds the middle 95 % of random
    orders (of the first curve that has some), the grey line their mean; the dotted horizontal line
    is the undisturbed model.
    """
    import plotly.graph_objects as go

    if not curves:
        raise OptionError("no pruning curve is given; make one with pruning_curve(...)")
    first = curves[0]
    for curve in curves[1:]:
        wrong = [k for k in _SAME if curve.made.get(k) != first.made.get(k)]
        if wrong:
            raise OptionError(
                f"the curves {first.name!r} and {curve.name!r} differ in {', '.join(wrong)}; a "
                f"figure can only show curves of one model and task"
            )
    figure = go.Figure()
    drawn = next((c for c in curves if len(c.random)), None)
    if drawn is not None:
        at = drawn.measured_at_random
        filled_between(
            figure,
            at,
            *drawn.band().T,
            fillcolor=BAND,
            legendgroup="random",
            name="random orders, middle 95 %",
        )
        figure.add_scatter(
            x=at,
            y=drawn.random.mean(0),
            mode="lines",
            line={"color": GREY, "width": 1},
            name="random orders, mean",
            legendgroup="random",
            hovertemplate="random: %{y:.4g}<extra></extra>",
        )
    one_order = len({c.order for c in curves}) == 1
    for i, curve in enumerate(curves):
        colour, dash, group = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)], f"curve {i}"
        named = text(curve.name if one_order else f"{curve.name}, {curve.order}")
        interval = curve.bounds()
        if not np.isnan(interval).any():
            filled_between(
                figure,
                curve.counts,
                *interval.T,
                fillcolor=faded(colour, 0.18),
                name=text(curve.name),
                legendgroup=group,
                showlegend=False,
            )
        last = ["nobody" if c == 0 else curve.removed[c - 1] for c in curve.counts]
        figure.add_scatter(
            x=curve.counts,
            y=curve.value,
            mode="lines+markers",
            name=named,
            legendgroup=group,
            line={"color": colour, "dash": dash, "width": 2.5},
            marker={"size": 5},
            text=[text(x) for x in last],
            hovertemplate="%{x} removed, last %{text}: %{y:.4g}<extra></extra>",
        )
        if curve.held_out_per_prompt is not None:
            figure.add_scatter(
                x=curve.counts,
                y=curve.held_out_per_prompt.mean(1),
                mode="lines",
                name=f"{named}, held-out prompts",
                legendgroup=group,
                line={"color": colour, "dash": "dot", "width": 1.5},
                hovertemplate="%{x} removed, ranked on the other half: %{y:.4g}<extra></extra>",
            )
    figure.add_hline(
        y=first.clean,
        line={"color": "#000000", "dash": "dot", "width": 1},
        annotation_text="undisturbed",
        annotation_position="bottom right",
    )
    task, unit = first.made.get("task", "task"), first.unit
    better = "higher" if first.higher_is_better else "lower"
    who = str(first.made.get("players", "players")).replace("_", " ")
    what = f"{first.made.get('model_id', '')}: {who} removed ({first.made.get('kind', '')})"
    figure.update_layout(
        template="plotly_white",
        title=text(what if title is None else title),
        height=520,
        xaxis={"title": {"text": f"{who} removed, of {first.n_players}"}, "rangemode": "tozero"},
        yaxis={"title": {"text": text(f"{task} ({unit}), {better} is better")}},
        legend={"orientation": "h", "y": -0.2},
        font={"size": 14},
    )
    return figure


def save_curves(curves: Sequence[PruningCurve], folder: str | os.PathLike) -> tuple[Path, ...]:
    """Write `pruning.html` and `pruning.csv` with all curves, and each as `pruning-NAME.json`.

    Curves with other names in the folder are shown after them; a damaged file is moved aside.
    """
    import pandas as pd

    folder = Path(folder)
    written = {_file(folder, c): c for c in curves}
    curves = [*curves, *_others(folder, written)]
    figure = plot_curves(curves)
    frames = [c.wide().assign(ranking=c.name) for c in curves]
    whole = pd.concat(frames, ignore_index=True)
    paths = [folder / "pruning.csv", folder / "pruning.html"]
    write_atomically(paths[0], csv_text(whole).encode())
    parts: list[tuple[Any, ...]] = [
        (c.name, c.summary, f.drop(columns="ranking")) for c, f in zip(curves, frames, strict=True)
    ]
    parts.insert(0, ("All curves", svg(figure)))
    write_atomically(paths[1], pruning_page(curves, sections=parts))
    for path, curve in written.items():
        write_atomically(path, curve.to_json())
        paths.append(path)
    return tuple(paths)


def _file(folder: Path, curve: PruningCurve) -> Path:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", curve.name).strip("-.") or "curve"
    return folder / f"pruning-{name}.json"


def _others(folder: Path, written: Collection[Path]) -> list[PruningCurve]:
    curves = []
    for path in sorted(folder.glob("pruning-*.json")):
        if path not in written:
            try:
                curves.append(PruningCurve.read(path))
            except StoreError as error:
                set_aside(path, error.__cause__ or error)
    return curves
