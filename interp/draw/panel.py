"""Heat maps of layers by heads as static pictures, their colour bars, and bars of scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.core.columns import score_text
from interp.draw.colours import Scale, Theme, palette, scale_ends
from interp.draw.plot import tooltip
from interp.draw.sprite import data_url, indexed_png
from interp.draw.svg import element, svg_picture

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pandas as pd

LEFT, TOP = 44, 34  # margins for the numbers of layers and heads, and for their names
_NO_SCORE = {"light": "#b9b9b9", "dark": "#5a5f66"}
_KEYS = "; arrow keys move from head to head, Enter opens a head's card"


def panel(
    rows: pd.DataFrame,
    name: str,
    *,
    shape: tuple[int, int],
    scale: Scale,
    detail: int,
    data: Any = "",
) -> Markup:
    """Return a figure: caption, map, colour bar, and an output line for the selected head.

    Args:
        rows: The scores of one metric.
        name: The caption.
        shape: The numbers of layers and heads.
        scale: The colours.
        detail: 2 for an element with a tooltip per head, 1 for a picture and the numbers, 0 for a
            picture.
        data: A link to the numbers.
    """
    import numpy as np

    grid = np.full(shape, np.nan)
    grid[rows["layer"], rows["head"]] = rows["score"]
    first = rows.iloc[0]
    about = {"data_unit": first["unit"], "data_metric": first["metric"],
             "data_stack": first["stack"]}  # fmt: skip
    titles = None
    if detail == 2:
        titles = {(r["layer"], r["head"]): tooltip(r) for r in rows.to_dict("records")}
    elif detail == 1:
        about |= _numbers(rows, shape)
    what = f"{name}: heat map of {shape[0]} layers by {shape[1]} heads{_KEYS if detail else ''}"
    drawn = head_map(scale.bins(grid), what, signed=scale.signed, titles=titles, role="group",
                     tabindex=0, **about)  # fmt: skip
    beyond, missing = scale.beyond(grid), int(np.isnan(grid).sum())
    notes = [scale.note, f"{beyond} beyond the range, shown as its end" if beyond else "",
             f"{missing} without a score" if missing else ""]  # fmt: skip
    caption = element("figcaption", name, " ", element("span", first["unit"], class_="unit"), data)
    note = element("p", "; ".join(filter(None, notes)), class_="note")
    output = element("output", aria_live="polite")
    return element("figure", caption, drawn, colour_bar(scale), note, output)


def head_map(
    bins: np.ndarray,
    what: str,
    *,
    signed: bool,
    titles: Mapping[tuple[int, int], str] | None,
    **attributes: Any,
) -> Markup:
    """Return a map of `[layer, head]` colours, layer 0 on top.

    Args:
        bins: The index of each head's colour, -1 for a head without a score.
        what: A description of the map for screen readers.
        signed: True for the colours of signed scores.
        titles: A tooltip per (layer, head) to draw; without them the map is one image.
        attributes: Further attributes of the `<svg>`.
    """
    n_layers, n_heads = bins.shape
    # large enough for a finger; two maps of 64 heads fit side by side
    cell = 24 if n_heads <= 16 and n_layers <= 24 else 16 if n_heads <= 32 else 9
    size = LEFT + n_heads * cell + 2, TOP + n_layers * cell + 2
    if titles is None:
        body = _images(bins, signed, cell)
    else:
        body = Markup("\n").join(
            element("rect", element("title", told), x=LEFT + head * cell, y=TOP + layer * cell,
                    width=cell - 1, height=cell - 1, class_=colour_class(bins[layer, head], signed))
            for (layer, head), told in titles.items()
        )  # fmt: skip
    axes = map_axes(n_layers, n_heads, cell)
    return svg_picture(*size, axes, body, class_="map", aria_label=what, data_cell=cell,
                   data_heads=n_heads, data_layers=n_layers, **attributes)  # fmt: skip


def colour_class(at: int, signed: bool) -> str:
    """Return the style class of a bin of a scale."""
    return "none" if at < 0 else f"{'d' if signed else 'q'}{at}"


def colour_bar(scale: Scale) -> Markup:
    """Return the colours of a scale between its two ends."""
    low, high = scale_ends(scale)
    ramp = element("i", class_=f"bar bar-{'d' if scale.signed else 'q'}")
    return element("div", element("span", low), ramp, element("span", high), class_="scale")


def bar(
    value: float, scale: Scale, *, sem: Any = None, null: float = math.nan, width: int = 160
) -> Markup:
    """Draw a score as a bar from zero (or the low end), with its error and a line at its null.

    Args:
        value: The score.
        scale: The range of the bar.
        sem: One standard error, or both ends of an interval.
        null: The score of the null, NaN if there is none.
        width: The width in pixels.
    """

    def x(v: float) -> float:
        part = (v - scale.low) / (scale.high - scale.low)
        return round(width * min(max(part, 0.0), 1.0), 1)

    left, right = sorted((x(max(scale.low, min(0.0, scale.high))), x(value)))
    colour = ("d26" if value >= 0 else "d6") if scale.signed else "q18"
    parts = [element("rect", x=left, y=3, width=right - left, height=8, class_=colour)]
    error = sem or math.nan
    ends = sem if isinstance(sem, tuple) else (value - error, value + error)
    if all(map(math.isfinite, ends)):
        low, high = map(x, ends)
        way = f"M{low:g} 7H{high:g}M{low:g} 4v6M{high:g} 4v6"
        parts.append(element("path", class_="error", d=way))
    if math.isfinite(null):
        parts.append(element("path", class_="null", d=f"M{x(null):g} 0v14"))
    return element("svg", *parts, class_="score", viewBox=f"-1 0 {width + 2} 14", width=width + 2,
                   height=14, aria_hidden="true")  # fmt: skip


def map_axes(n_layers: int, n_heads: int, cell: int) -> Markup:
    """Return the numbers of heads and layers along a map, and their names."""
    def every(count: int) -> range:
        return range(0, count, next(s for s in (1, 2, 4, 8, 16, 64, 256, 4096) if count / s <= 16))

    xs = [element("text", h, x=LEFT + (h + 0.5) * cell, y=TOP - 6) for h in every(n_heads)]
    ys = [element("text", y, x=LEFT - 6, y=TOP + (y + 0.5) * cell + 4, class_="y")
          for y in every(n_layers)]  # fmt: skip
    turn = f"translate(12 {TOP + n_layers * cell / 2:g}) rotate(-90)"
    head = element("text", "head", class_="axis", x=LEFT + n_heads * cell / 2, y=TOP - 22)
    layer = element("text", "layer", class_="axis", transform=turn)
    return element("g", head, layer, *xs, *ys, aria_hidden="true")


def _images(bins: np.ndarray, signed: bool, cell: int) -> Markup:
    n_layers, n_heads = bins.shape
    themes: tuple[Theme, ...] = ("light", "dark")
    box = {"x": LEFT, "y": TOP, "width": n_heads * cell, "height": n_layers * cell}
    images = []
    for theme in themes:
        colours = [*palette(signed, theme), _NO_SCORE[theme]]
        source = data_url(indexed_png((bins % len(colours)).astype("uint8"), colours))
        images.append(
            element("image", class_=theme, **box, preserveAspectRatio="none", href=source)
        )
    return Markup("").join(images)


def _numbers(rows: pd.DataFrame, shape: tuple[int, int]) -> dict[str, str]:
    """Return score, error and null per head, and n, once if all heads have the same n."""
    import numpy as np

    places = (rows["layer"] * shape[1] + rows["head"]).to_numpy()

    def listed(column: str, spell: Any) -> str:
        texts = np.full(shape[0] * shape[1], "", dtype=object)
        texts[places] = ["" if math.isnan(x) else _short(x, spell(x)) for x in rows[column]]
        return ",".join(texts) if any(texts) else ""

    counts = rows["n"].unique()
    n = str(counts[0]) if len(counts) == 1 else listed("n", str)
    found = {f"data_{column}": listed(column, score_text) for column in ("score", "null")}
    return found | {"data_sem": listed("sem", "{:.2g}".format), "data_n": n}


def _short(value: float, text: str) -> str:
    return text.replace("0.", ".", 1) if abs(value) < 1 else text
