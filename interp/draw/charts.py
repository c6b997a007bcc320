"""Plotly figures of results: bars with intervals, grids of numbers, heat maps of heads, curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.columns import with_error
from interp.draw.colours import BAND, COLOURS, DASHES, GREY, Range, Scale, faded, palette
from interp.draw.page import text

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from interp.core.table import HeadTable

_LEAST, _MOST = -1.0, 2.0  # curves are cut off beyond, since harmful heads can have large effects


def bars(rows: pd.DataFrame, names: Sequence[str], *, title: str, unit: str) -> go.Figure:
    """Draw one bar per row with its confidence interval, where every row has one."""
    import plotly.graph_objects as go

    error: dict[str, Any] = {"visible": False}
    if bool(rows["low"].notna().to_numpy().all()):
        error = {"type": "data", "symmetric": False, "array": rows["high"] - rows["score"]}
        error |= {"arrayminus": rows["score"] - rows["low"]}
    named = [text(name) for name in names]
    bar = go.Bar(x=named, y=rows["score"], error_y=error, marker_color=COLOURS[0])
    axis = {"title": {"text": text(unit)}}
    return go.Figure(bar, {"template": "plotly_white", "title": text(title), "yaxis": axis})


def grid(
    values: Float[np.ndarray, "row column"],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    hover: Sequence[Sequence[str]],
    title: str,
    unit: str,
) -> go.Figure:
    """Draw numbers row by row, the first row at the bottom."""
    import plotly.graph_objects as go

    cells = go.Heatmap(
        z=values.astype(np.float32),
        y=[text(x) for x in rows],
        text=[[text(x) for x in row] for row in hover],
        hovertemplate="%{text}<extra></extra>",
        colorscale=palette(bool(np.nanmin(values, initial=0.0) < 0)),
        colorbar={"title": {"text": text(unit)}},
    )
    axis = {"tickvals": [*range(len(columns))], "ticktext": [text(x) for x in columns]}
    return go.Figure(cells, {"template": "plotly_white", "title": text(title), "xaxis": axis})


def signed_map(table: pd.DataFrame, *, title: str, unit: str) -> go.Figure:
    """Draw a table of numbers as a heat map, on colours that reach as far below 0 as above."""
    import plotly.graph_objects as go

    z = table.to_numpy()
    size = float(np.nanmax(np.abs(z), initial=1e-9))
    cells = go.Heatmap(
        z=z,
        x=[str(c) for c in table.columns],
        y=[str(i) for i in table.index],
        zmin=-size,
        zmax=size,
        colorscale=[[0, "#6b2a00"], [0.5, "#f1f5f8"], [1, "#06264f"]],
        colorbar={"title": unit},
    )
    return go.Figure(cells, {"template": "plotly_white", "title": title})


def map_of_places(rows: pd.DataFrame, value: str, *, title: str, unit: str) -> go.Figure:
    """Draw one column of rows with a layer and a place as a heat map, layer by layer."""
    table = rows.pivot_table(index="layer", columns="place", values=value, sort=False)
    figure = signed_map(table, title=title, unit=unit)
    axes = {"xaxis": {"type": "category"}, "yaxis": {"type": "category", "title": "layer"}}
    return figure.update_layout(axes)


def curve(rows: pd.DataFrame, what: str, title: str = "") -> go.Figure:
    """Draw the columns `faithfulness` and `random` with its band, on a logarithmic scale."""
    import plotly.graph_objects as go

    size, figure = rows[what].to_numpy(), go.Figure()
    if "random_low" in rows:
        ends = _cut(rows["random_low"]), _cut(rows["random_high"])
        filled_between(figure, size, *ends, fillcolor=BAND, name="random orders, middle 95 %")
    for column, colour, name in (
        ("faithfulness", COLOURS[0], f"the first {what}"),
        ("random", GREY, "in random order"),
    ):
        figure.add_scatter(
            x=size, y=_cut(rows[column]), mode="lines+markers", name=name, line={"color": colour}
        )
    for level in (0, 1):
        figure.add_hline(y=level, line={"color": GREY, "dash": "dot", "width": 1})
    both = rows[["faithfulness", "random"]].to_numpy()
    cut = f"; cut off at {_LEAST:g} and {_MOST:g}" if (both != _cut(both)).any() else ""
    sentence = f"{what} that stay intact, others {rows['ablation'].iloc[0]} (doubling scale){cut}"
    figure.update_layout(template="plotly_white", title=text(title), height=360)
    labels = [f"{n:.0f}" for n in size]
    figure.update_xaxes(title_text=sentence, type="log", tickvals=size, ticktext=labels)
    figure.update_yaxes(title_text="faithfulness")
    return figure


def _cut(values: object) -> np.ndarray:
    return np.clip(np.asarray(values, dtype=float), _LEAST, _MOST)


def filled_between(figure: go.Figure, x: np.ndarray, low: Any, high: Any, **style: Any) -> None:
    """Fill the area between two curves, without hover texts."""
    ends = np.r_[low, np.asarray(high)[::-1]]
    figure.add_scatter(
        x=np.r_[x, x[::-1]],
        y=ends,
        fill="toself",
        mode="lines",
        hoverinfo="skip",
        line={"width": 0},
        **style,
    )


def training_curves(found: Any, metric: str, named: int) -> go.Figure:
    """Draw the scores of one metric against the training step."""
    import plotly.graph_objects as go

    frame = found[metric].to_pandas()
    groups = list(frame.groupby(["stack", "layer", "head"], sort=False))
    span = {key: float(part["score"].max() - part["score"].min()) for key, part in groups}
    first = sorted(span, key=lambda key: -span[key])[:named]
    figure = go.Figure()
    for key, part in groups:
        if key not in first:
            line = {"color": GREY, "width": 0.7}
            figure.add_scatter(
                x=part["step"],
                y=part["score"],
                mode="lines",
                line=line,
                showlegend=False,
                name=_head(key, frame),
                hoverinfo="skip",
            )
    parts = dict(groups)
    for at, key in enumerate(first):
        part, name = parts[key], _head(key, frame)
        colour = COLOURS[at % len(COLOURS)]
        if bool(part["low"].notna().all()):
            ends = part["low"].to_numpy(), part["high"].to_numpy()
            fill = {"fillcolor": faded(colour, 0.15), "showlegend": False, "name": name}
            filled_between(figure, part["step"].to_numpy(), *ends, **fill)
        line = {"color": colour, "width": 2, "dash": DASHES[at % len(DASHES)]}
        figure.add_scatter(
            x=part["step"], y=part["score"], mode="lines+markers", line=line, name=name
        )
    unit = str(frame["unit"].iloc[0]) if len(frame) else ""
    figure.update_layout(template="plotly_white", title=text(f"{metric} over training"), height=420)
    figure.update_xaxes(title_text="training step")
    return figure.update_yaxes(title_text=text(unit))


def _head(key: Any, frame: Any) -> str:
    stack, layer, head = key
    name = f"L{layer}H{head}"
    return text(f"{stack} {name}") if frame["stack"].nunique() > 1 else name


def heatmap(
    table: HeadTable,
    metric: str,
    *,
    model: str | None = None,
    stack: str | None = None,
    declared: Range | None = None,
) -> go.Figure:
    """Draw layers (0 on top) by heads, one panel per model and stack, with one colour range.

    A line above the figure states the origin of the colour range, and the number of scores beyond.

    Args:
        table: The scores.
        metric: The metric to draw.
        model: The model to draw; all models by default.
        stack: The stack to draw; all stacks by default.
        declared: The range of the metric; open ends are taken from the scores.

    Raises:
        UnknownName: The table has no such metric, model or stack.
    """
    import numpy as np
    from plotly.subplots import make_subplots

    table = table.where(metric=metric, model=model, stack=stack)
    frame = table.to_pandas()
    scale = Scale.fit(frame["score"], declared)
    sites = list(dict.fromkeys(zip(frame["model"], frame["stack"], strict=True)))
    # plotly reads titles as HTML, and the name of a model is text
    titles = [text(" ".join(site)) for site in sites]
    figure = make_subplots(rows=len(sites), cols=1, subplot_titles=titles)
    for row, (one_model, one_stack) in enumerate(sites, start=1):
        grid = table.matrix(metric, model=one_model, stack=one_stack)
        hover = np.full(grid.shape, "", dtype=object)
        for record in table.where(model=one_model, stack=one_stack).to_pandas().to_dict("records"):
            hover[record["layer"], record["head"]] = text(tooltip(record))
        # float32 arrays are stored as bytes, a fifth of the size of a list of numbers
        panel = {"z": grid.astype(np.float32), "coloraxis": "coloraxis", "text": hover}
        figure.add_heatmap(**panel, hovertemplate="%{text}<extra></extra>", row=row, col=1)
        layers, heads = (max(1, count // 16) for count in grid.shape)
        figure.update_xaxes(title_text="head", dtick=heads, row=row, col=1)
        figure.update_yaxes(title_text="layer", dtick=layers, autorange="reversed", row=row, col=1)
    unit = frame["unit"].iloc[0] if len(frame) else ""
    title = "<br>".join(text(x) for x in (metric, unit) if x)
    beyond = scale.beyond(frame["score"].to_numpy())
    notes = [scale.note.replace("on this page", "in this figure")] if scale.note else []
    notes += [f"{beyond} beyond the range, shown as its end"] if beyond else []
    if notes:
        figure.update_layout(title={"text": text("; ".join(notes)), "font": {"size": 12}})
    colours = {"colorscale": palette(scale.signed), "cmin": scale.low, "cmax": scale.high}
    colours["colorbar"] = {"title": {"text": title}}
    return figure.update_layout(coloraxis=colours, height=120 + 320 * len(sites))


def tooltip(row: Mapping[str, Any]) -> str:
    """Return a line on one head: name, score ± standard error and unit, null, prompts."""
    name = f"L{row['layer']}H{row['head']}"
    if row["kv_head"] != row["head"]:
        name += f" (kv head {row['kv_head']})"
    if not row["n"]:
        return f"{name}: no score, no prompt had a row to average"
    null = "" if math.isnan(row["null"]) else f"; null {with_error(row['null'], row['null_sem'])}"
    unit = f" {row['unit']}" if row["unit"] else ""
    return f"{name}: {with_error(row['score'], row['sem'])}{unit}{null}; n {row['n']}"
