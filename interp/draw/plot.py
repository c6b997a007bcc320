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
    """A plotly figure, layers (0 on top) x heads, one panel per (model, stack), one colour range.

    `declared` is the metric's range; an end that it leaves open comes from the scores, and the
    line above the figure says so, as it says how many scores lie beyond the colours. Raises
    UnknownName.
    """
    import numpy as np
    from plotly.subplots import make_subplots

    table = table.where(metric=metric, model=model, stack=stack)
    frame = table.to_pandas()
    scale = Scale.fit(frame["score"], declared)
    sites = list(dict.fromkeys(zip(frame["model"], frame["stack"], strict=True)))
    # Plotly reads a title as HTML; a model's name is text.
    titles = [text(" ".join(site)) for site in sites]
    figure = make_subplots(rows=len(sites), cols=1, subplot_titles=titles)
    for row, (one_model, one_stack) in enumerate(sites, start=1):
        rows = table.where(model=one_model, stack=one_stack).to_pandas().to_dict("records")
        grid = table.matrix(metric, model=one_model, stack=one_stack)
        hover = np.full(grid.shape, "", dtype=object)
        for record in rows:
            hover[record["layer"], record["head"]] = text(tooltip(record))
        # float32: typed arrays travel as bytes, a fifth of the size of a list of numbers.
        panel = {"z": grid.astype(np.float32), "coloraxis": "coloraxis", "text": hover}
        figure.add_heatmap(**panel, hovertemplate="%{text}<extra></extra>", row=row, col=1)
        figure.update_xaxes(title_text="head", dtick=max(1, grid.shape[1] // 16), row=row, col=1)
        figure.update_yaxes(title_text="layer", dtick=max(1, grid.shape[0] // 16), row=row, col=1)
        figure.update_yaxes(autorange="reversed", row=row, col=1)
    unit = frame["unit"].iloc[0] if len(frame) else ""
    title = [text(x) for x in (metric, unit) if x]
    beyond = scale.beyond(frame["score"].to_numpy())
    said = [scale.note.replace("on this page", "in this figure")] if scale.note else []
    said += [f"{beyond} beyond the range, shown as its end"] if beyond else []
    if said:
        figure.update_layout(title={"text": text("; ".join(said)), "font": {"size": 12}})
    figure.update_layout(
        coloraxis={
            "colorscale": palette(scale.signed),
            "cmin": scale.low,
            "cmax": scale.high,
            "colorbar": {"title": {"text": "<br>".join(title)}},
        },
        height=120 + 320 * len(sites),
    )
    return figure


def tooltip(row: Mapping[str, Any]) -> str:
    """One head in one line: name, score ± standard error and unit, null, number of prompts."""
    name = f"L{row['layer']}H{row['head']}"
    if row["kv_head"] != row["head"]:
        name += f" (kv head {row['kv_head']})"
    if not row["n"]:
        return f"{name}: no score, no prompt had a row to average"
    null = "" if math.isnan(row["null"]) else f"; null {with_error(row['null'], row['null_sem'])}"
    unit = f" {row['unit']}" if row["unit"] else ""
    return f"{name}: {with_error(row['score'], row['sem'])}{unit}{null}; n {row['n']}"
