"""Faithfulness over sizes as an SVG that needs no script."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from interp.draw.page import COLOURS, GREY
from interp.draw.svg import element, picture, standing

if TYPE_CHECKING:
    import pandas as pd

_WIDE, _HIGH = 640, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 150, 16, 44
_ROOM = 44  # from label to label
_LEAST, _MOST = -1.0, 2.0  # beyond, a curve is cut: heads that hurt a task can take it far


def curve(rows: pd.DataFrame, what: str) -> str:
    """One `<svg>` of the columns `heads` (or `edges`), `faithfulness` and `random` with its band.

    Args:
        rows: what an evaluation's `to_pandas` gives.
        what: is at work, `heads` or `edges`; on a scale of doublings.
    """
    size = [float(x) for x in rows[what]]
    lines = {name: [_cut(x) for x in rows[name]] for name in ("faithfulness", "random")}
    every = [y for line in lines.values() for y in line]
    low, high = min(0.0, *every), max(1.0, *every)
    span = math.log2(max(size[-1], 2.0))

    def x(n: float) -> float:
        return _LEFT + math.log2(n) / span * (_WIDE - _LEFT - _RIGHT)

    def y(f: float) -> float:
        return _TOP + (high - f) / (high - low) * (_HIGH - _TOP - _BOTTOM)

    def points(ns: Iterable[float], fs: Iterable[float]) -> str:
        return " ".join(f"{x(n):.1f},{y(f):.1f}" for n, f in zip(ns, fs, strict=True))

    parts = []
    if "random_low" in rows:
        upper, lower = ([_cut(v) for v in rows[f"random_{end}"]] for end in ("high", "low"))
        upper, lower = ([min(max(v, low), high) for v in band] for band in (upper, lower))
        outline = points([*size, *size[::-1]], [*upper, *lower[::-1]])
        parts.append(element("polygon", points=outline, fill=GREY, fill_opacity=0.2))
    for f in (0.0, 1.0):
        parts.append(element("line", x1=_LEFT, x2=_WIDE - _RIGHT, y1=y(f), y2=y(f), stroke=GREY,
                             stroke_dasharray="2 3"))  # fmt: skip
        parts.append(element("text", f"{f:.0f}", x=_LEFT - 8, y=y(f) + 4, text_anchor="end"))
    labelled: list[float] = []
    for n in reversed(size):  # the last always, others where there is room
        if not labelled or labelled[-1] - x(n) >= _ROOM:
            labelled.append(x(n))
            parts.append(element("text", f"{n:.0f}", x=x(n), y=_HIGH - 24, text_anchor="middle"))
        tick = f"M{x(n):.1f} {_HIGH - _BOTTOM}V{_HIGH - 38}"
        parts.append(element("path", d=tick, stroke=GREY))
    for place, (name, colour) in enumerate((("faithfulness", COLOURS[0]), ("random", GREY))):
        parts.append(element("polyline", points=points(size, lines[name]), fill="none",
                             stroke=colour, stroke_width=2))  # fmt: skip
        for n, f in zip(size, lines[name], strict=True):
            told = element("title", f"{n:.0f} {what}: {f:.3f}")
            parts.append(element("circle", told, cx=x(n), cy=y(f), r=3, fill=colour))
        label = "the first" if name == "faithfulness" else "in random order"
        parts.append(element("text", label, x=_WIDE - _RIGHT + 14, y=_TOP + 16 + 18 * place))
        mark = f"M{_WIDE - _RIGHT + 2} {_TOP + 12 + 18 * place}h8"
        parts.append(element("path", d=mark, stroke=colour, stroke_width=3))
    ablation = str(rows["ablation"].iloc[0])
    told = f"faithfulness with {what} at work, others {ablation}; {what} on a scale of doublings"
    if any(not _LEAST <= float(f) <= _MOST for name in lines for f in rows[name]):
        told += f"; cut off at {_LEAST:g} and {_MOST:g}"
    parts.append(element("text", told, x=_LEFT, y=_HIGH - 6, fill="#444444"))
    return standing(
        picture(
            _WIDE,
            _HIGH,
            *parts,
            font_family="sans-serif",
            font_size=12,
            role="img",
            aria_label=told,
        )
    )


def _cut(f: float) -> float:
    return min(max(float(f), _LEAST), _MOST)
