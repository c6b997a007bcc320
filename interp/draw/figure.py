"""A plotly figure as a static picture: lines, markers, bars, areas and maps without its script."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.draw.axes import Axis, axes
from interp.draw.colours import COLOURS
from interp.draw.sprite import data_url, indexed_png
from interp.draw.svg import element, picture

if TYPE_CHECKING:
    import numpy as np
    import plotly.graph_objects as go

WIDE = 960
CELLS = 2_500  # of a map with an element and a number for each; more are an image
_LEGEND = 20
_DASHES = {"dash": "6 4", "dot": "2 3", "dashdot": "8 3 2 3", "longdash": "11 4"}


def svg(figure: go.Figure) -> Markup:
    """Draw what a figure of this package shows: its traces, lines, titles, axes and legend.

    Numbers that plotly shows under the pointer are titles of the marks.
    """
    layout = figure.layout
    traces = [t for t in figure.data if t.visible in (None, True)]
    named = [(i, t) for i, t in enumerate(traces) if t.name and t.showlegend is not False]
    legend = named if len(named) > 1 else []
    above = any(note.xref == "paper" for note in layout.annotations)
    top = 12 + 22 * bool(layout.title.text) + 22 * above
    height = (layout.height or 450) + top
    rows = _legend_rows(legend)
    tall = height + _LEGEND * len(rows)
    places = axes(layout, traces, (WIDE, height), top)
    parts: list[Any] = []
    for x, y in dict.fromkeys(places.values()):
        parts += [*x.drawn(y), *y.drawn(x)]
    for i, trace in enumerate(traces):
        x, y = places[i]
        draw = {"bar": _bars, "heatmap": _cells, "scatter": _points}.get(trace.type)
        if draw is not None:
            parts.append(element("g", *draw(trace, x, y, _colour(trace, i), layout)))
    parts += _level_lines(layout, places)
    title = _lines(layout.title.text)
    parts += _texts(title, 12, 20, class_="title")
    for note in layout.annotations:
        if note.xref == "paper":
            at = 70 + note.x * (WIDE - 100), top + (1 - note.y) * (height - top - 60)
            parts += _texts(_lines(note.text), at[0], at[1] - 6, text_anchor="middle")
    for row, entries in enumerate(rows):
        parts += _legend_row(entries, height + _LEGEND * row + 12)
    said = "; ".join([*title, *(t for _, trace in named for t in _lines(trace.name))])
    return picture(WIDE, tall, *parts, class_="figure", role="img", aria_label=said or "figure")


def _lines(text: str | None) -> list[str]:
    """The lines of a text in plotly's markup."""
    parts = re.split(r"<br ?/?>", text or "")
    return [html.unescape(re.sub(r"</?[bi]>", "", part)) for part in parts if part]


def _texts(lines: Sequence[str], x: float, y: float, **style: Any) -> list[Markup]:
    return [element("text", t, x=x, y=y + 15 * i, **style) for i, t in enumerate(lines)]


def _colour(trace: Any, at: int) -> str:
    colour = trace.line.color if trace.type == "scatter" else None
    colour = colour or (trace.marker.color if hasattr(trace, "marker") else None)
    return _ink(colour if isinstance(colour, str) else COLOURS[at % len(COLOURS)])


def _ink(colour: str) -> str:
    """Black is the ink of the page, which is light on a dark one."""
    return "currentColor" if colour == "#000000" else colour


def _points(trace: Any, x: Axis, y: Axis, colour: str, layout: Any) -> list[Markup]:
    mode = trace.mode or "lines+markers"
    xs, ys = list(trace.x), list(trace.y)
    at = [(x(a), y(b)) for a, b in zip(xs, ys, strict=True)]
    known = [all(map(math.isfinite, p)) for p in at]
    way = " ".join(f"{a:.1f},{b:.1f}" for (a, b), k in zip(at, known, strict=True) if k)
    parts: list[Markup] = []
    if trace.fill:
        return [element("polygon", points=way, fill=trace.fillcolor or colour, stroke="none")]
    if "lines" in mode:
        dash = _DASHES.get(trace.line.dash or "")
        width = float(trace.line.width or 2)
        parts.append(
            element("polyline", points=way, fill="none", stroke=colour, stroke_width=width,
                    stroke_dasharray=dash)
        )  # fmt: skip
    texts = (
        trace.text
        if isinstance(trace.text, (tuple, list)) or hasattr(trace.text, "tolist")
        else None
    )
    for i, (where, k) in enumerate(zip(at, known, strict=True)):
        if not k:
            continue
        told = _lines(str(texts[i])) if texts is not None and "text" in mode else []
        if "markers" in mode:
            name = next(
                (s[i] for s in (trace.customdata, trace.hovertext, texts) if _listed(s)), ""
            )
            lines = [*_lines(str(name)), f"{x.spelled(xs[i])}, {y.spelled(ys[i])}"]
            parts.append(_mark(trace.marker, where, colour, ": ".join(lines)))
            parts += _texts(told, where[0], where[1] - 7, text_anchor="middle", font_size=10)
        else:
            high = where[1] - 7.5 * (len(told) - 1)
            parts += _texts(told, where[0], high, text_anchor="middle")
    return parts


def _listed(x: Any) -> bool:
    return x is not None and not isinstance(x, str)


def _mark(marker: Any, at: tuple[float, float], colour: str, said: str) -> Markup:
    size = float(marker.size if isinstance(marker.size, (int, float)) else 6)
    x, y = at
    title = element("title", said)
    if str(marker.symbol).startswith("line-ew"):
        return element("path", title, d=f"M{x - size / 2:.1f} {y:.1f}h{size:g}",
                       stroke="currentColor",
                       stroke_width=2)  # fmt: skip
    opacity = float(marker.opacity) if isinstance(marker.opacity, (int, float)) else None
    return element("circle", title, cx=x, cy=y, r=max(2.0, size / 2), fill=colour, opacity=opacity)


def _bars(trace: Any, x: Axis, y: Axis, colour: str, layout: Any) -> list[Markup]:
    level = trace.orientation == "h"
    along, across = (x, y) if level else (y, x)
    values, names = (trace.x, trace.y) if level else (trace.y, trace.x)
    error = trace.error_x if level else trace.error_y
    one = isinstance(trace.marker.color, str) or trace.marker.color is None
    thick = max(1.0, 0.8 * across.step)
    parts = []
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        if not math.isfinite(value):
            continue
        low, high = sorted((along(0.0), along(value)))
        start, fill = across(name) - thick / 2, colour if one else trace.marker.color[i]
        box = (low, start, high - low, thick) if level else (start, low, thick, high - low)
        said = element("title", f"{across.spelled(name)}: {along.spelled(value)}")
        size = dict(zip(("x", "y", "width", "height"), map(float, box), strict=True))
        parts.append(element("rect", said, **size, fill=_ink(fill)))
        if error.visible is not False and error.array is not None:
            less = error.array if error.arrayminus is None else error.arrayminus
            ends = along(value - less[i]), along(value + error.array[i])
            if all(map(math.isfinite, ends)):
                parts.append(_whisker(ends, across(name), level))
    return parts


def _whisker(ends: tuple[float, float], at: float, level: bool) -> Markup:
    low, high = ends
    way = f"M{low:.1f} {at:.1f}H{high:.1f}" if level else f"M{at:.1f} {low:.1f}V{high:.1f}"
    return element("path", d=way, class_="error")


def _cells(trace: Any, x: Axis, y: Axis, colour: str, layout: Any) -> list[Markup]:
    import numpy as np

    z: np.ndarray = np.asarray(trace.z, dtype=float)
    scale = layout.coloraxis if trace.coloraxis else trace
    low, high = (scale.cmin, scale.cmax) if trace.coloraxis else (scale.zmin, scale.zmax)
    low = float(np.nanmin(z)) if low is None else float(low)
    high = float(np.nanmax(z)) if high is None else float(high)
    colours = [c for _, c in scale.colorscale]
    part = np.nan_to_num((z - low) / ((high - low) or 1.0))
    bins = np.rint(np.clip(part, 0, 1) * (len(colours) - 1)).astype(np.uint8)
    bins[np.isnan(z)] = len(colours)
    ramp = indexed_png(np.arange(len(colours), dtype=np.uint8)[None], colours)
    name = _lines(scale.colorbar.title.text)
    end = x.last + 14
    parts = [
        element("image", href=data_url(ramp), x=end - 50, y=y.first + 58, width=100, height=12,
                preserveAspectRatio="none", transform=f"rotate(-90 {end:g} {y.first + 64:g})"),
        *_texts([f"{high:.3g}", *name], end + 10, y.first + 22),
        *_texts([f"{low:.3g}"], end + 10, y.first + 114),
    ]  # fmt: skip
    if z.size > CELLS:
        image = indexed_png(bins, [*colours, "#b9b9b9"])
        turn = f"matrix({'1 0 0 1 0 0' if y.reversed else f'1 0 0 -1 0 {y.first + y.last:g}'})"
        box = {"x": x.first, "y": y.first, "width": x.last - x.first, "height": y.last - y.first}
        shown = element(
            "image", href=data_url(image), preserveAspectRatio="none", transform=turn, **box
        )
        return [shown, *parts]
    columns = list(range(z.shape[1])) if trace.x is None else list(trace.x)
    rows = list(range(z.shape[0])) if trace.y is None else list(trace.y)
    for (i, j), value in np.ndenumerate(z):
        told = "none" if math.isnan(value) else f"{value:.4g}"
        said = f"{y.spelled(rows[i])}, {x.spelled(columns[j])}: {told}"
        if _listed(trace.text):
            said = " ".join(_lines(str(trace.text[i][j]))) or said
        fill = "#b9b9b9" if bins[i, j] == len(colours) else colours[bins[i, j]]
        parts.append(
            element("rect", element("title", said), x=x(columns[j]) - x.step / 2,
                    y=y(rows[i]) - y.step / 2, width=x.step * 0.96, height=y.step * 0.96, fill=fill)
        )  # fmt: skip
    return parts


def _level_lines(layout: Any, places: dict[int, tuple[Axis, Axis]]) -> list[Markup]:
    """Horizontal lines across a plot, with their texts."""
    found, by_name = [], {f"{y.name}": (x, y) for x, y in places.values()}
    for shape in layout.shapes:
        x, y = by_name.get(shape.yref, (None, None))
        if shape.type == "line" and shape.y0 == shape.y1 and x is not None and y is not None:
            found.append(
                element("path", d=f"M{x.first:.1f} {y(shape.y0):.1f}H{x.last:.1f}",
                        stroke=_ink(shape.line.color or "#000000"),
                        stroke_dasharray=_DASHES.get(shape.line.dash or ""))
            )  # fmt: skip
    for note in layout.annotations:
        x, y = by_name.get(note.yref, (None, None))
        if x is not None and y is not None:
            found += _texts(_lines(note.text), x.last - 4, y(note.y) + 14, text_anchor="end",
                            class_="soft")  # fmt: skip
    return found


def _legend_rows(entries: Sequence[tuple[int, Any]]) -> list[list[tuple[float, int, Any]]]:
    rows: list[list[tuple[float, int, Any]]] = []
    x = math.inf
    for i, trace in entries:
        wide = 50 + 7 * len(" ".join(_lines(trace.name)))
        if x + wide > WIDE - 20:
            rows.append([])
            x = 70.0
        rows[-1].append((x, i, trace))
        x += wide
    return rows


def _legend_row(entries: Sequence[tuple[float, int, Any]], y: float) -> list[Markup]:
    parts: list[Markup] = []
    for x, i, trace in entries:
        colour = _colour(trace, i)
        if trace.type == "scatter" and not trace.fill:
            markers = "lines" not in (trace.mode or "lines")
            mark = _mark(trace.marker, (x + 12, y - 4), colour, "") if markers else element(
                "path", d=f"M{x:g} {y - 4:g}h26", stroke=colour, stroke_width=2,
                stroke_dasharray=_DASHES.get(trace.line.dash or ""),
            )  # fmt: skip
        else:
            fill = (trace.fillcolor if trace.type == "scatter" else None) or colour
            mark = element("rect", x=x, y=y - 9, width=26, height=10, fill=fill)
        parts += [mark, *_texts([" ".join(_lines(trace.name))], x + 32, y)]
    return parts
