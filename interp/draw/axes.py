"""Axes of a static figure: positions of values, ticks, labels and grid lines."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

from markupsafe import Markup

from interp.draw.svg import element

_LEFT, _RIGHT, _BOTTOM = 70, 30, 56
_LONG = 34  # letters of a tick
_FEW = 4  # plots beside and below each other


class Axis:
    """Axis between two positions in pixels, with names in their order of appearance."""

    def __init__(
        self, layout: Any, name: str, values: list[Any], place: tuple[float, float], margin: float
    ):
        self.layout, self.name, self.upright, self.margin = layout, name, name[0] == "y", margin
        self.first, self.last = place
        self.names = list(dict.fromkeys(v for v in values if isinstance(v, str)))
        self.at = {name: i for i, name in enumerate(self.names)}
        self.texts = tick_texts(layout)
        self.aslant = not self.upright and too_wide(self.texts, self.last - self.first)
        self.reversed = layout.autorange == "reversed"
        self.cells, self.labelled = False, True
        self.cell = 1.0  # of a map, in units of the axis
        if self.names:
            self.low, self.high = -0.5, len(self.names) - 0.5
        elif layout.range is not None:
            self.low, self.high = map(float, layout.range)
        else:
            numbers = [self._scaled(v) for v in values if math.isfinite(v)] or [0.0, 1.0]
            numbers += [0.0] * (layout.rangemode == "tozero")
            low, high = min(numbers), max(numbers)
            pad = 0.04 * ((high - low) or abs(high) or 1.0)
            self.low, self.high = low - pad * (low != 0 or self.upright), high + pad

    def over_cells(self, count: int, middles: Sequence[Any] | None) -> None:
        """Give all rows or columns of a map the same size, around their middles if given."""
        if self.names:
            return
        first, last = (0, count - 1) if middles is None else (min(middles), max(middles))
        self.cell = (last - first) / (count - 1) if count > 1 else 1.0
        self.low, self.high = first - self.cell / 2, last + self.cell / 2
        self.cells = middles is None

    def __call__(self, value: Any) -> float:
        """Return the position of a value in pixels."""
        number = self.at[value] if isinstance(value, str) else self._scaled(value)
        part = (number - self.low) / ((self.high - self.low) or 1.0)
        if self.reversed != self.upright:
            part = 1 - part
        return self.first + part * (self.last - self.first)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.layout.type == "log" else float(value)

    @property
    def step(self) -> float:
        """Pixels per name or unit."""
        return (self.last - self.first) / max(abs(self.high - self.low), 1e-9)

    def spelled(self, value: Any) -> str:
        """Return a value as text, numbers with four digits."""
        return html.unescape(value) if isinstance(value, str) else f"{float(value):.4g}"

    def ticks(self) -> list[tuple[float, str]]:
        """Return positions and labels, as many as fit."""
        if self.upright:
            room = 16 if self.names or self.texts else 32
        else:
            room = 14 if self.aslant else 22 if self.names else 64
        room = min(room, abs(self.last - self.first) / 2.5)
        if self.layout.tickvals is not None:
            marks = list(zip(map(self, self.layout.tickvals), self.texts, strict=True))
        elif self.names:
            marks = [(self(name), self.spelled(name)) for name in self.names]
        else:
            return self._numbers(room)
        shown: list[tuple[float, str]] = []
        for at, label in reversed(marks):  # the last label always, others where they fit
            level = not (self.upright or self.names or self.aslant)
            wide = 7 * len(label) + 10 if level else room
            if not shown or abs(shown[-1][0] - at) >= wide:
                shown.append((at, label))
        return shown[::-1]

    def _numbers(self, room: float) -> list[tuple[float, str]]:
        """Return multiples of 1, 2 or 5 times a power of ten, at least `room` pixels apart."""
        low, high = sorted((self.low, self.high))
        raw = (high - low) * room / max(abs(self.last - self.first), 1.0)
        ten = 10.0 ** math.floor(math.log10(raw or 1.0))
        unit = next(ten * s for s in (1, 2, 5, 10) if ten * s >= raw)
        unit = max(unit, 1.0) if self.cells else unit
        steps = range(math.ceil(low / unit), math.floor(high / unit) + 1)
        return [(self(i * unit), f"{round(i * unit, 10):g}") for i in steps]

    def drawn(self, other: Axis) -> list[Markup]:
        """Draw the grid lines, ticks and title, beside or below the plot along `other`."""
        if self.layout.visible is False:
            return []
        out: list[Markup] = []
        ticks = [(at, t if len(t) <= _LONG else t[: _LONG - 1] + "…") for at, t in self.ticks()]
        turned = sum(7 * len(t) + 8 for _, t in ticks) > self.last - self.first
        style: dict[str, Any]
        for at, label in ticks:
            if self.upright:
                line = f"M{other.first:.1f} {at:.1f}H{other.last:.1f}"
                style = {"x": other.first - 6, "y": at + 4, "text_anchor": "end"}
            else:
                line = f"M{at:.1f} {other.first:.1f}V{other.last:.1f}"
                style = {"x": at, "y": other.last + 16, "text_anchor": "middle"}
                if self.aslant or (self.names and turned):
                    turn = f"translate({at + 4:.1f} {other.last + 8:.1f}) rotate(-60)"
                    style = {"transform": turn, "text_anchor": "end"}
            if not self.names:
                out.append(element("path", d=line, class_="grid"))
            if self.labelled:
                out.append(element("text", label, class_="soft", **style))
        title, middle = html.unescape(self.layout.title.text or ""), (self.first + self.last) / 2
        style = {"x": middle, "y": other.last + (self.margin - 8)}
        if self.upright:
            beside = other.first - self.margin + 12
            style = {"transform": f"translate({beside:.1f} {middle:.1f}) rotate(-90)"}
        return [*out, element("text", title, **style, text_anchor="middle")] if title else out


def axes(
    layout: Any, traces: Sequence[Any], size: tuple[float, float], top: float
) -> dict[int, tuple[Axis, Axis]]:
    """Return the two axes of every trace by its index; traces of one plot share them."""
    wide, tall = size
    used: dict[str, list[Any]] = {}
    over: dict[str, tuple[int, Any]] = {}
    for trace in traces:
        for letter in "xy":
            name = trace[f"{letter}axis"] or letter
            used.setdefault(name, []).extend(() if trace[letter] is None else trace[letter])
            if trace.type == "bar" and (trace.orientation == "h") == (letter == "x"):
                used[name] += [0.0, *chain(*error_ends(trace, letter))]  # bars begin at zero
            if trace.type == "heatmap":
                over[name] = len(trace.z if letter == "y" else trace.z[0]), trace[letter]
    for shape in layout.shapes:
        used.get(shape.yref, []).append(shape.y0)
    asked = {name: layout[f"{name[0]}axis{name[1:]}"] for name in used}
    texts = {name: tick_texts(axis) for name, axis in asked.items()}
    words = {
        n: texts[n] or [v for v in dict.fromkeys(vs) if isinstance(v, str)]
        for n, vs in used.items()
    }
    longest = {n: min(_LONG, max(map(len, vs), default=0)) for n, vs in words.items()}
    left = max(_LEFT, 34 + 7 * max((v for n, v in longest.items() if n[0] == "y"), default=0))
    right = _RIGHT + 90 * any(t.type == "heatmap" for t in traces)
    spans = {n: high - low for n, axis in asked.items() for low, high in [axis.domain or (0, 1)]}
    crowded = any(
        7 * sum(map(len, vs)) > wide or too_wide(texts[n], spans[n] * (wide - left - right))
        for n, vs in words.items()
        if n[0] == "x"
    )
    lower = max((v for n, v in longest.items() if n[0] == "x"), default=0)
    bottom = _BOTTOM + 5.6 * lower * crowded
    room = {"x": (left, wide - left - right), "y": (top, tall - top - bottom)}
    margins = {"x": bottom, "y": left}
    by_name: dict[str, Axis] = {}
    for name, values in used.items():
        start, length = room[name[0]]
        low, high = asked[name].domain or (0.0, 1.0)
        if name[0] == "y":
            low, high = 1 - high, 1 - low
        place = start + low * length, start + high * length
        by_name[name] = Axis(asked[name], name, values, place, margins[name[0]])
        if name in over:
            by_name[name].over_cells(*over[name])
    of_traces = {
        i: (by_name[t.xaxis or "x"], by_name[t.yaxis or "y"]) for i, t in enumerate(traces)
    }
    if len(set(of_traces.values())) > _FEW:  # in a grid, numbers fit on the outer axes only
        for x, y in of_traces.values():
            x.labelled, y.labelled = y.last >= tall - bottom - 1, x.first <= left + 1
    return of_traces


def tick_texts(layout: Any) -> list[str]:
    """Return the texts that an axis states for its ticks, without plotly's markup."""
    given = () if layout.ticktext is None else layout.ticktext
    return [html.unescape(str(text)) for text in given]


def too_wide(texts: Sequence[str], length: float) -> bool:
    """Tell whether the longest of evenly spaced texts does not fit beside the others."""
    longest = min(_LONG, max(map(len, texts), default=0))
    return bool(texts) and (7 * longest + 10) * len(texts) > length


def error_ends(trace: Any, letter: str) -> list[tuple[float, float]]:
    """Return both ends of the error of every bar, or nothing for bars without errors."""
    error = trace[f"error_{letter}"]
    if error.visible is False or error.array is None:
        return []
    less = error.array if error.arrayminus is None else error.arrayminus
    return [(v - a, v + b) for v, a, b in zip(trace[letter], less, error.array, strict=True)]
