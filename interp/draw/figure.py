"""Static SVG pictures of plotly figures: lines, markers, bars, areas and heat maps."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.draw.axes import Axis, axes, error_ends
from interp.draw.colours import COLOURS
from interp.draw.sprite import data_url, indexed_png
from interp.draw.svg import element, svg_picture

if TYPE_CHECKING:
    import plotly.graph_objects as go

WIDE = 960
CELLS = 2_500  # of a map whose cells are elements with numbers; a larger map is an image
_ROW = 20  # of a legend
_DASHES = {"dash": "6 4", "dot": "2 3", "dashdot": "8 3 2 3", "longdash": "11 4"}
_RAMP = 100.0  # height of the colours of a scale
_BLANK = "#b9b9b9"  # of a cell without a value


def svg(figure: go.Figure, *, wide: float = WIDE, vector: bool = False) -> Markup:
    """Draw a figure of this package: its traces, lines, titles, axes and legend.

    Hover texts of plotly become titles of the marks.
    """
    shown: Any = figure
    layout, title = shown.layout, _lines(shown.layout.title.text)
    traces = [t for t in shown.data if t.visible in (None, True)]
    above = [note for note in layout.annotations if note.xref == "paper"]
    top = 12 + 22 * bool(title) + 22 * bool(above)
    height = (layout.height or 450) * min(1.0, (1 + wide / WIDE) / 2) + top
    places = axes(layout, traces, (wide, height), top)
    parts: list[Any] = [
        line for x, y in dict.fromkeys(places.values()) for line in (*x.drawn(y), *y.drawn(x))
    ]
    panels = {(x.name, y.name): (x, y) for x, y in places.values()}
    parts += _pictures(layout, panels, "below")
    for i, (trace, (x, y)) in enumerate(zip(traces, places.values(), strict=True)):
        colour = _colour(trace, i)
        if trace.type == "heatmap":
            parts += _cells(trace, x, y, layout, vector)
        elif trace.type in ("bar", "scatter"):
            parts += (_bars if trace.type == "bar" else _points)(trace, x, y, colour)
    parts += _pictures(layout, panels, "above")
    parts += _level_lines(layout, {y.name: (x, y) for x, y in places.values()})
    parts += _texts(title, 12, 20, class_="title")
    left = min((x.first for x, _ in places.values()), default=0.0)
    right = max((x.last for x, _ in places.values()), default=0.0)
    for note in above:
        at = left + note.x * (right - left), top + (1 - note.y) * (height - top - 60)
        parts += _texts(_lines(note.text), at[0], at[1] - 6, text_anchor="middle")
    named = [(i, t) for i, t in enumerate(traces) if t.name and t.showlegend is not False]
    legend, tall = _legend(named if len(named) > 1 else [], height, wide)
    label = "; ".join([*title, *(t for _, trace in named for t in _lines(trace.name))]) or "figure"
    style = {"class_": "figure", "role": "img", "aria_label": label}
    return svg_picture(wide, tall, *parts, *legend, **style)


def _pictures(
    layout: Any, panels: Mapping[tuple[str, str], tuple[Axis, Axis]], layer: str
) -> list[Markup]:
    """Return the pictures that lie below or above the traces of a plot."""
    pictures = []
    for one in layout.images:
        if (one.xref, one.yref) in panels and (one.layer or "above") == layer:
            x, y = panels[one.xref, one.yref]
            left, right = sorted((x(one.x), x(one.x + one.sizex)))
            top, bottom = sorted((y(one.y), y(one.y + one.sizey)))
            pictures.append(
                element(
                    "image",
                    href=one.source,
                    x=left,
                    y=top,
                    width=right - left,
                    height=bottom - top,
                    preserveAspectRatio="none",
                )
            )
    return pictures


def _lines(text: str | None) -> list[str]:
    """Return the lines of a text in plotly's markup."""
    parts = re.split(r"<br ?/?>", text or "")
    return [html.unescape(re.sub(r"</?[bi]>", "", part)) for part in parts if part]


def _texts(lines: Sequence[str], x: float, y: float, **style: Any) -> list[Markup]:
    return [element("text", t, x=x, y=y + 15 * i, **style) for i, t in enumerate(lines)]


def _colour(trace: Any, at: int) -> str:
    """Return the colour of a trace; black becomes the text colour of the page."""
    given = getattr(trace.line if trace.type == "scatter" else None, "color", None)
    given = given or getattr(getattr(trace, "marker", None), "color", None)
    colour = given if isinstance(given, str) else COLOURS[at % len(COLOURS)]
    return "currentColor" if colour == "#000000" else colour


def _points(trace: Any, x: Axis, y: Axis, colour: str) -> list[Markup]:
    mode, xs, ys = trace.mode or "lines+markers", list(trace.x), list(trace.y)
    at = [(x(a), y(b)) for a, b in zip(xs, ys, strict=True)]
    known = [i for i, place in enumerate(at) if all(map(math.isfinite, place))]
    way = " ".join(f"{at[i][0]:.1f},{at[i][1]:.1f}" for i in known)
    if trace.fill:
        return [element("polygon", points=way, fill=trace.fillcolor or colour, stroke="none")]
    parts: list[Markup] = []
    if "lines" in mode:
        parts.append(
            element(
                "polyline",
                points=way,
                fill="none",
                stroke=colour,
                stroke_width=float(trace.line.width or 2),
                stroke_dasharray=_DASHES.get(trace.line.dash or ""),
            )
        )
    names = [s for s in (trace.customdata, trace.hovertext, trace.text) if _listed(s)]
    for i in known:
        lines = _lines(str(trace.text[i])) if _listed(trace.text) and "text" in mode else []
        style: dict[str, Any] = {"text_anchor": "middle"}
        high = at[i][1] - 7.5 * (len(lines) - 1)
        if "markers" in mode:
            name = _lines(str(names[0][i])) if names else []
            label = ": ".join([*name, f"{x.spelled(xs[i])}, {y.spelled(ys[i])}"])
            parts.append(_mark(trace.marker, at[i], colour, label))
            high, style = at[i][1] - 7, style | {"font_size": 10}
        parts += _texts(lines, at[i][0], high, **style)
    return parts


def _listed(x: Any) -> bool:
    return x is not None and not isinstance(x, str)


def _mark(marker: Any, at: tuple[float, float], colour: str, said: str = "") -> Markup:
    size = float(marker.size if isinstance(marker.size, (int, float)) else 6)
    title = element("title", said)
    if str(marker.symbol).startswith("line-ew"):
        return _line(at[0] - size / 2, at[1], size, "currentColor", title=title)
    opacity = float(marker.opacity) if isinstance(marker.opacity, (int, float)) else None
    return element(
        "circle", title, cx=at[0], cy=at[1], r=max(2.0, size / 2), fill=colour, opacity=opacity
    )


def _line(
    x: float, y: float, wide: float, colour: str, dash: Any = None, title: Any = ""
) -> Markup:
    return element(
        "path",
        title,
        d=f"M{x:.1f} {y:.1f}h{wide:.1f}",
        stroke=colour,
        stroke_width=2,
        stroke_dasharray=_DASHES.get(dash or ""),
    )


def _bars(trace: Any, x: Axis, y: Axis, colour: str) -> list[Markup]:
    level = trace.orientation == "h"
    along, across, letter = (x, y, "x") if level else (y, x, "y")
    thick, errors = max(1.0, 0.8 * across.step), error_ends(trace, letter)
    fills, parts = trace.marker.color, []
    for i, (name, value) in enumerate(
        zip(trace["y" if level else "x"], trace[letter], strict=True)
    ):
        if not math.isfinite(value):
            continue
        (low, high), start = sorted((along(0.0), along(value))), across(name) - thick / 2
        box = (low, start, high - low, thick) if level else (start, low, thick, high - low)
        title = element("title", f"{across.spelled(name)}: {along.spelled(value)}")
        size = dict(zip(("x", "y", "width", "height"), map(float, box), strict=True))
        parts.append(element("rect", title, **size, fill=fills[i] if _listed(fills) else colour))
        if errors and all(map(math.isfinite, errors[i])):
            (low, high), at = map(along, errors[i]), f"{across(name):.1f}"
            way = f"M{low:.1f} {at}H" if level else f"M{at} {low:.1f}V"
            parts.append(element("path", d=f"{way}{high:.1f}", class_="error"))
    return parts


def _cells(trace: Any, x: Axis, y: Axis, layout: Any, vector: bool) -> list[Markup]:
    import numpy as np

    z = np.asarray(trace.z, dtype=float)
    scale, prefix = (layout.coloraxis, "c") if trace.coloraxis else (trace, "z")
    low, high = scale[f"{prefix}min"], scale[f"{prefix}max"]
    low = float(np.nanmin(z)) if low is None else float(low)
    high = float(np.nanmax(z)) if high is None else float(high)
    colours = _hexadecimal(scale.colorscale)
    part = np.clip(np.nan_to_num((z - low) / ((high - low) or 1.0)), 0, 1)
    bins = np.where(np.isnan(z), len(colours), np.rint(part * (len(colours) - 1))).astype(np.uint8)
    end = x.last + 14
    parts = (
        []
        if scale.showscale is False
        else [
            *_ramp(colours, end, y.first + 14, vector=vector),
            *_texts([f"{high:.3g}", *_lines(scale.colorbar.title.text)], end + 10, y.first + 22),
            *_texts([f"{low:.3g}"], end + 10, y.first + 114),
        ]
    )
    if z.size > CELLS:
        image = indexed_png(bins if y.reversed else bins[::-1], [*colours, _BLANK])
        box = {"x": x.first, "y": y.first, "width": x.last - x.first, "height": y.last - y.first}
        style = {"preserveAspectRatio": "none", "image_rendering": "optimizeSpeed"}
        whole = element("image", href=data_url(image), **style, **box)
        return [whole, *parts]
    columns = range(z.shape[1]) if trace.x is None else list(trace.x)
    rows = range(z.shape[0]) if trace.y is None else list(trace.y)
    for (i, j), value in np.ndenumerate(z):
        text = "none" if math.isnan(value) else f"{value:.4g}"
        label = f"{y.spelled(rows[i])}, {x.spelled(columns[j])}: {text}"
        if _listed(trace.text):
            label = " ".join(_lines(str(trace.text[i][j]))) or label
        parts.append(
            element(
                "rect",
                element("title", label),
                x=x(columns[j]) - x.step * x.cell / 2,
                y=y(rows[i]) - y.step * y.cell / 2,
                width=x.step * x.cell * 0.96,
                height=y.step * y.cell * 0.96,
                fill=[*colours, _BLANK][bins[i, j]],
                opacity=trace.opacity,
            )
        )
    return parts


def _ramp(colours: list[str], middle: float, top: float, *, vector: bool) -> list[Markup]:
    """Return the colours of a scale, the highest on top."""
    if vector:
        step = _RAMP / len(colours)
        ways = (
            f"M{middle - 6:g} {top + _RAMP - i * step:.2f}h12v{-step:.2f}h-12z"
            for i in range(len(colours))
        )
        return [element("path", d=d, fill=c) for d, c in zip(ways, colours, strict=True)]
    import numpy as np

    ramp = indexed_png(np.arange(len(colours), dtype=np.uint8)[None], colours)
    turned = f"rotate(-90 {middle:g} {top + _RAMP / 2:g})"
    return [
        element(
            "image",
            href=data_url(ramp),
            x=middle - _RAMP / 2,
            y=top + _RAMP / 2 - 6,
            width=100,
            height=12,
            preserveAspectRatio="none",
            transform=turned,
        )
    ]


def _hexadecimal(scale: Sequence[tuple[float, str]]) -> list[str]:
    """Return the colours of a scale; those of a scale of another package are interpolated."""
    if all(colour.startswith("#") for _, colour in scale):
        return [colour for _, colour in scale]
    from plotly.colors import sample_colorscale

    sampled: Any = sample_colorscale([list(end) for end in scale], 64, colortype="tuple")
    return ["#" + "".join(f"{round(255 * part):02x}" for part in colour) for colour in sampled]


def _level_lines(layout: Any, named: dict[str, tuple[Axis, Axis]]) -> list[Markup]:
    """Return horizontal lines across a plot, with their texts."""
    lines = []
    for shape in layout.shapes:
        if shape.yref in named and shape.type == "line" and shape.y0 == shape.y1:
            (x, y), colour = named[shape.yref], shape.line.color
            colour = "currentColor" if colour == "#000000" else colour
            lines.append(_line(x.first, y(shape.y0), x.last - x.first, colour, shape.line.dash))
    for note in (note for note in layout.annotations if note.yref in named):
        x, y = named[note.yref]
        style = {"text_anchor": "end", "class_": "soft"}
        lines += _texts(_lines(note.text), x.last - 4, y(note.y) + 14, **style)
    return lines


def _legend(
    entries: Sequence[tuple[int, Any]], y: float, wide: float
) -> tuple[list[Markup], float]:
    """Return the legend in rows from y on, and the end of its last row."""
    parts: list[Markup] = []
    x, y = wide, y + 12 - _ROW
    for i, trace in entries:
        name, colour = " ".join(_lines(trace.name)), _colour(trace, i)
        if x + 50 + 7 * len(name) > wide - 20:
            x, y = 70, y + _ROW
        if trace.type == "scatter" and not trace.fill:
            mark = _line(x, y - 4, 26, colour, trace.line.dash)
            if "lines" not in (trace.mode or "lines"):
                mark = _mark(trace.marker, (x + 12, y - 4), colour)
        else:
            fill = getattr(trace, "fillcolor", None) or colour
            mark = element("rect", x=x, y=y - 9, width=26, height=10, fill=fill)
        parts += [mark, *_texts([name], x + 32, y)]
        x += 50 + 7 * len(name)
    return parts, y + 8
