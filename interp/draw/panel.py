"""Heat maps of layers by heads as static pictures, their colour bars, and bars of scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.draw.colours import Scale, scale_ends
from interp.draw.svg import element, svg_picture

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

LEFT, TOP = 44, 34  # margins for the numbers of layers and heads, and for their names


def head_map(
    bins: np.ndarray,
    what: str,
    *,
    signed: bool,
    titles: Mapping[tuple[int, int], str],
    **attributes: Any,
) -> Markup:
    """Return a map of `[layer, head]` colours, layer 0 on top.

    Args:
        bins: The index of each head's colour, -1 for a head without a score.
        what: A description of the map for screen readers.
        signed: True for the colours of signed scores.
        titles: A tooltip per (layer, head) to draw.
        attributes: Further attributes of the `<svg>`.
    """
    n_layers, n_heads = bins.shape
    # large enough for a finger; two maps of 64 heads fit side by side
    cell = 24 if n_heads <= 16 and n_layers <= 24 else 16 if n_heads <= 32 else 9
    size = LEFT + n_heads * cell + 2, TOP + n_layers * cell + 2
    body = Markup("\n").join(
        element("rect", element("title", stated), x=LEFT + head * cell, y=TOP + layer * cell,
                width=cell - 1, height=cell - 1, class_=colour_class(bins[layer, head], signed))
        for (layer, head), stated in titles.items()
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
