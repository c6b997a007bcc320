"""Figures of results without a script: curves with bands, circuits by layer, trees, tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from interp.core.columns import score_text
from interp.core.tokens import shown
from interp.draw.colours import COLOURS, Scale
from interp.draw.page import fold
from interp.draw.panel import colour_class
from interp.draw.svg import element, svg_picture
from interp.report.arcs import arcs
from interp.report.atlas.document import (
    Alignment,
    ColouredTexts,
    Curves,
    Line,
    Maps,
    Part,
    Sound,
    Tokens,
)
from interp.report.atlas.graph import graph_figure, pair_figure
from interp.report.atlas.signs import Sign

_WIDE, _HIGH, _LEFT, _TOP, _BOTTOM = 560, 230, 62, 12, 44
_SENTENCES, _OPEN = 6, 1  # drawn of the trees of a model, and not folded
_DASHES = (None, "7 4", "2 4", "7 3 2 3")


def figure_of(part: Part, signs: Mapping[str, Sign] | None = None) -> Markup | str:
    """Return the figure of a result, or "" where it has none."""
    figure: Any = part.get("figure")
    if not figure:
        return ""
    if figure["draw"] == "curves":
        return curves_figure(figure, part["title"])
    if figure["draw"] == "graph":
        drawn = graph_figure(figure, part["id"], part["title"], signs)
        curves, pair = figure.get("curves"), figure.get("pair")
        beside = curves_figure(curves, f"{part['title']}: faithfulness") if curves else ""
        prompt = pair_figure(pair) if pair else ""
        return element("div", drawn, beside, class_="two") + prompt
    if figure["draw"] in _DRAWN:
        return _DRAWN[figure["draw"]](figure)
    pictures = [
        element(
            "div",
            arcs(
                s["words"],
                s["heads"],
                s["relations"],
                [tuple(pair) for pair in s["predicted"]],
                directed=s["directed"],
            ),
            class_="sentence",
        )
        for s in figure["sentences"][:_SENTENCES]
    ]
    more = pictures[_OPEN:]
    folded = fold(f"{len(more)} more sentences", *more) if more else ""
    return Markup("").join(pictures[:_OPEN]) + folded


def curves_figure(figure: Curves, name: str) -> Markup:
    """Return lines with their bands over one axis, and a legend where there are several."""
    lines = [line for line in figure["lines"] if _points(line)]
    if not lines:
        return element("p", "There are no points to draw.", class_="note")
    every = [v for line in lines for key in ("y", "low", "high") for v in line[key]]
    xs = [v for line in lines for v in line["x"]]
    x = _axis(xs, _LEFT, _WIDE - 12)
    y = _axis(every, _HIGH - _BOTTOM, _TOP)
    parts = [*_grid(xs, every, x, y, figure)]
    for at, line in enumerate(lines):
        parts += _line(line, at, x, y)
    height = _HIGH
    if len(lines) > 1:
        for at, line in enumerate(lines):
            place = _HIGH + 12 + 18 * at
            parts += [
                element(
                    "path",
                    d=f"M{_LEFT} {place - 4}h26",
                    stroke=_colour(line, at),
                    stroke_width=2,
                    stroke_dasharray=_DASHES[at % 4],
                ),
                element("text", line["name"], x=_LEFT + 34, y=place),
            ]
        height = _HIGH + 18 * len(lines) + 4
    text = "; ".join(f"{line['name']}: {_ends(line)}" for line in lines[:4])
    return svg_picture(
        _WIDE,
        height,
        *parts,
        class_="figure",
        role="img",
        aria_label=f"{name}. {figure['y']} over {figure['x']}. {text}",
    )


def _points(line: Line) -> list[tuple[float, float]]:
    pairs = zip(line["x"], line["y"], strict=True)
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def _ends(line: Line) -> str:
    (a, first), (b, last) = _points(line)[0], _points(line)[-1]
    return f"{score_text(first)} at {a:g}, {score_text(last)} at {b:g}"


def _axis(values: Sequence[float | None], start: float, end: float) -> Callable[[float], float]:
    seen = [v for v in values if v is not None and math.isfinite(v)]
    low, high = min(seen), max(seen)
    size = (high - low) or 1.0

    def place(v: float) -> float:
        return round(start + (end - start) * (v - low) / size, 1)

    return place


def _grid(xs: Sequence[Any], ys: Sequence[Any], x: Any, y: Any, figure: Curves) -> list[Markup]:
    out = []
    for tick in _ticks(ys):
        out.append(element("path", d=f"M{_LEFT} {y(tick)}H{_WIDE - 12}", class_="grid"))
        out.append(
            element(
                "text", f"{tick:g}", x=_LEFT - 6, y=y(tick) + 4, text_anchor="end", class_="soft"
            )
        )
    out += [
        element(
            "text",
            f"{tick:g}",
            x=x(tick),
            y=_HIGH - _BOTTOM + 18,
            text_anchor="middle",
            class_="soft",
        )
        for tick in _ticks(xs)
    ]
    middle = (_TOP + _HIGH - _BOTTOM) / 2
    out.append(
        element("text", figure["x"], x=(_LEFT + _WIDE) / 2, y=_HIGH - 6, text_anchor="middle")
    )
    out.append(
        element(
            "text",
            figure["y"],
            text_anchor="middle",
            transform=f"translate(14 {middle:g}) rotate(-90)",
        )
    )
    return out


def _ticks(values: Sequence[float | None]) -> list[float]:
    """Return about five round numbers within the range of the values."""
    seen = [v for v in values if v is not None and math.isfinite(v)]
    low, high = min(seen), max(seen)
    if high <= low:
        return [low]
    rough = (high - low) / 5
    size = 10 ** math.floor(math.log10(rough))
    step = next(m * size for m in (1, 2, 5, 10) if m * size >= rough)
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 12) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _colour(line: Line, at: int) -> str:
    return "currentColor" if line["kind"] == "random" else COLOURS[at % (len(COLOURS) - 1)]


def _line(line: Line, at: int, x: Any, y: Any) -> list[Markup]:
    colour, out = _colour(line, at), []
    if line["low"] and line["high"]:
        triples = zip(line["x"], line["low"], line["high"], strict=True)
        band = [(a, b, c) for a, b, c in triples if None not in (a, b, c)]
        way = [f"{x(a)},{y(b)}" for a, b, _ in band] + [f"{x(a)},{y(c)}" for a, _, c in band[::-1]]
        out.append(element("polygon", points=" ".join(way), fill=colour, opacity=0.15))
    points = _points(line)
    way = " ".join(f"{x(a)},{y(b)}" for a, b in points)
    out.append(
        element(
            "polyline",
            points=way,
            fill="none",
            stroke=colour,
            stroke_width=2,
            stroke_dasharray=_DASHES[at % 4],
        )
    )
    if len(points) <= 40:
        out += [
            element(
                "circle",
                element("title", f"{line['name']}, {a:g}: {score_text(b)}"),
                cx=x(a),
                cy=y(b),
                r=3,
                fill=colour,
            )
            for a, b in points
        ]
    return out


def tokens_figure(figure: Tokens) -> Markup:
    """Return one line of coloured tokens per method, each on the scale of its largest score."""
    rows = []
    for name, scores in figure["rows"]:
        seen = [s for s in scores if s is not None]
        signed = any(s < 0 for s in seen)
        scale = Scale.around(max(map(abs, seen), default=0.0), signed=signed)
        spans = [_token(token, s, scale) for token, s in zip(figure["tokens"], scores, strict=True)]
        rows.append(element("p", element("b", name), f" (largest {scale.high:.3g})", class_="note"))
        rows.append(element("p", *spans, class_="text"))
    return element("div", *rows)


def texts_figure(figure: ColouredTexts) -> Markup:
    """Return several texts with coloured lines; all but the first are folded under their names."""
    drawn: list[Any] = []
    for at, one in enumerate(figure["texts"]):
        lines = tokens_figure({"draw": "tokens", "tokens": one["tokens"], "rows": one["rows"]})
        drawn.append(fold(one["name"], lines) if at else lines)
    return element("div", *drawn)


def _token(token: str, score: float | None, scale: Scale) -> Markup:
    import numpy as np

    at = -1 if score is None else int(scale.bins(np.array([score]))[0])
    text = f"{token!r} {'no score' if score is None else score_text(score)}"
    return element("span", shown(token), title=text, class_=colour_class(at, scale.signed))


def alignment_picture(figure: Alignment) -> Markup:
    """Return the weights of a sentence pair as a matrix, and its links as lines."""
    from interp.alignment.pictures import PairAlignment
    from interp.core.head import Head
    from interp.draw.figure import svg

    sure = figure["sure"]
    pair: Any = PairAlignment(
        Head(figure["layer"], figure["head"], "cross"),
        figure["row"],
        tuple(figure["source"]),
        tuple(figure["target"]),
        _array(figure["weights"]),
        _links(figure["links"]),
        None if sure is None else _links(sure),
        _links(figure["possible"]),
    )
    return element("div", svg(pair.lines()), svg(pair.matrix()))


def sound_picture(figure: Sound) -> Markup:
    """Return a spectrogram above the attention over the same time."""
    from interp.alignment import sound_pictures
    from interp.draw.figure import svg

    starts = [(float(second), int(row)) for second, row in figure["starts"]]
    return svg(
        sound_pictures.sound_figure(
            _array(figure["bands"]),
            _array(figure["attention"]),
            figure["tokens"],
            figure["seconds"],
            figure["title"],
            starts,
        )
    )


def maps_picture(figure: Maps) -> Markup:
    """Return every image with its maps."""
    from interp.draw.figure import svg
    from interp.vision.overlay import map_figure

    drawn = [
        svg(map_figure(_array(one["pixels"]), {k: _array(v) for k, v in one["maps"].items()}))
        for one in figure["images"]
    ]
    return element("div", *drawn)


def _array(values: Any) -> np.ndarray:
    return np.array(values, dtype=float)


def _links(values: Any) -> frozenset[tuple[int, int]]:
    return frozenset((int(source), int(target)) for source, target in values)


_DRAWN: dict[str, Callable[[Any], Markup]] = {
    "tokens": tokens_figure,
    "texts": texts_figure,
    "alignment": alignment_picture,
    "sound": sound_picture,
    "maps": maps_picture,
}
