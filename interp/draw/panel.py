"""Heat maps of layers by heads as static pictures, their colour bars, and bars of scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.draw.colours import Scale, scale_ends
from interp.draw.svg import element, svg_picture

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
    """Return a map of `[layer, head]` colours, layer 0 on top."""
    n_layers, n_heads = bins.shape
    # large enough for a finger; two maps of 64 heads fit side by side
    cell = 24 if n_heads <= 16 and n_layers <= 24 else 16 if n_heads <= 32 else 9
    size = LEFT + n_heads * cell + 2, TOP + n_layers * cell + 2
    body = Markup("\n").join(
        element(
            "rect",
            element("title", stated),
            x=LEFT + head * cell,
            y=TOP + layer * cell,
            width=cell - 1,
            height=cell - 1,
            class_=colour_class(bins[layer, head], signed),
        )
        for (layer, head), stated in titles.items()
    )
    axes = map_axes(n_layers, n_heads, cell)
    return svg_picture(
        *size,
        axes,
        body,
        class_="map",
        aria_label=what,
        data_cell=cell,
        data_heads=n_heads,
        data_layers=n_layers,
        **attributes,
    )


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
    """Draw a score as a bar from zero (or the low end), with its error and a line at its null."""

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
    return element(
        "svg",
        *parts,
        class_="score",
        viewBox=f"-1 0 {width + 2} 14",
        width=width + 2,
        height=14,
        aria_hidden="true",
    )


def interval(middle: float, low: float, high: float, most: float) -> Markup:
    """Draw a signed number as a dot with its interval, on the axis of `interval_axis`."""
    x = _signed(most)
    parts = [
        element("path", class_="null", d=f"M{x(0):g} 0v14"),
        element("circle", class_="above" if middle >= 0 else "below", cx=x(middle), cy=7, r=4),
    ]
    if not math.isnan(low):
        parts.insert(1, element("path", class_="error", d=f"M{x(low):g} 7H{x(high):g}"))
    return element(
        "svg",
        *parts,
        class_="signed score",
        viewBox=f"-5 0 {_SPAN + 10} 14",
        width=_SPAN + 10,
        height=14,
        aria_hidden="true",
    )


def interval_axis(most: float) -> Markup:
    """Draw the axis of intervals around zero, with numbers at its ends, for a column's head."""
    x = _signed(most)
    line = element(
        "path",
        class_="null",
        d=f"M{x(-most):g} 1H{x(most):g}M{x(-most):g} 0v4M{x(0):g} 0v4M{x(most):g} 0v4",
        fill="none",
    )
    ends = ((-most, "start"), (0.0, "middle"), (most, "end"))
    texts = [
        element("text", f"{v:.2g}".replace("-", "\u2212"), x=x(v), y=15, text_anchor=anchor)
        for v, anchor in ends
    ]
    return element(
        "svg",
        line,
        *texts,
        class_="axis score",
        viewBox=f"-5 0 {_SPAN + 10} 18",
        width=_SPAN + 10,
        height=18,
        role="img",
        aria_label=f"axis from {-most:.2g} to {most:.2g}",
    )


_SPAN = 150  # pixels of an interval


def _signed(most: float) -> Callable[[float], float]:
    return lambda v: round(_SPAN / 2 * (1 + v / most), 1)


def sparkline(
    points: Sequence[tuple[float, float]], what: str, ends: tuple[float, float]
) -> Markup:
    """Draw numbers over steps or sizes, on a logarithmic axis, as a line that stands in a row."""
    low, high = ends
    at = [math.log10(1 + step) for step, _ in points]
    wide, start = (at[-1] - at[0]) or 1.0, at[0]
    places = [
        (round(2 + 76 * (a - start) / wide, 1), round(18 - 16 * (v - low) / ((high - low) or 1), 1))
        for a, (_, v) in zip(at, points, strict=True)
    ]
    line = element("polyline", class_="spark", points=" ".join(f"{x:g},{y:g}" for x, y in places))
    dots = [element("circle", cx=x, cy=y, r=1.8) for x, y in places]
    (first, a), (last, b) = points[0], points[-1]
    label = f"{what}: {a:.3g} at {first:,.0f}, {b:.3g} at {last:,.0f}"
    return svg_picture(80, 20, line, *dots, class_="sparkline", role="img", aria_label=label)


def map_axes(n_layers: int, n_heads: int, cell: int) -> Markup:
    """Return the numbers of heads and layers along a map, and their names."""

    def every(count: int) -> range:
        return range(0, count, next(s for s in (1, 2, 4, 8, 16, 64, 256, 4096) if count / s <= 16))

    xs = [element("text", h, x=LEFT + (h + 0.5) * cell, y=TOP - 6) for h in every(n_heads)]
    ys = [
        element("text", y, x=LEFT - 6, y=TOP + (y + 0.5) * cell + 4, class_="y")
        for y in every(n_layers)
    ]
    turn = f"translate(12 {TOP + n_layers * cell / 2:g}) rotate(-90)"
    head = element("text", "head", class_="axis", x=LEFT + n_heads * cell / 2, y=TOP - 22)
    layer = element("text", "layer", class_="axis", transform=turn)
    return element("g", head, layer, *xs, *ys, aria_hidden="true")
