"""Heat maps of heads as plotly figures for notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from interp.core.columns import with_error
from interp.draw.colours import Range, Scale, palette
from interp.draw.page import text

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.core.table import HeadTable


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
