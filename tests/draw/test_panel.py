"""Small drawings of numbers and intervals, read back from their SVG."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest

from interp.draw.panel import Scale, bar, interval, interval_axis


def places(path: str) -> list[tuple[str, float, float | None]]:
    """Commands of a path with the numbers behind them."""
    found = re.findall(r"([MHv])(-?[\d.]+)(?: (-?[\d.]+))?", path)
    return [(c, float(a), float(b) if b else None) for c, a, b in found]


def test_an_interval_is_drawn_around_zero() -> None:
    middle = 75.0  # of 150 pixels
    for value, low, high in ((1.0, -0.5, 1.5), (-2.0, -4.0, 0.0)):
        svg = ET.fromstring(interval(value, low, high, 4.0))
        x0, y0, width, height = map(float, svg.get("viewBox", "").split())
        assert (x0, y0, width, height) == (-5, 0, 160, 14)
        assert (float(svg.get("width", 0)), float(svg.get("height", 0))) == (width, height)
        null, error, dot = svg
        assert places(null.get("d", ""))[0] == ("M", middle, 0)
        ends = [round(middle * (1 + v / 4), 1) for v in (low, high)]
        assert places(error.get("d", "")) == [("M", ends[0], 7), ("H", ends[1], None)]
        assert float(dot.get("cx", 0)) == pytest.approx(middle * (1 + value / 4), abs=0.05)
        assert dot.get("class") == ("above" if value >= 0 else "below")
    assert len(ET.fromstring(interval(1.0, math.nan, math.nan, 4.0))) == 2


def test_the_axis_of_intervals_ends_where_they_do() -> None:
    svg = ET.fromstring(interval_axis(4.0))
    assert (svg.get("viewBox"), svg.get("width"), svg.get("height")) == ("-5 0 160 18", "160", "18")
    assert svg.get("aria-label") == "axis from -4 to 4"
    line, *texts = svg
    assert places(line.get("d", "")) == [
        ("M", 0, 1),
        ("H", 150, None),
        ("M", 0, 0),
        ("v", 4, None),
        ("M", 75, 0),
        ("v", 4, None),
        ("M", 150, 0),
        ("v", 4, None),
    ]
    assert [(x.text, float(x.get("x", -1)), x.get("text-anchor")) for x in texts] == [
        ("\u22124", 0, "start"),
        ("0", 75, "middle"),
        ("4", 150, "end"),
    ]


@pytest.mark.parametrize(("value", "sem"), [(0.5, 0.25), (0.5, (0.1, 0.75)), (-0.5, None)])
def test_a_bar_starts_at_zero_and_shows_its_error(value: float, sem: object) -> None:
    scale = Scale(-1.0, 1.0, signed=True)
    svg = ET.fromstring(bar(value, scale, sem=sem, null=0.25, width=160))
    assert (svg.get("viewBox"), svg.get("width"), svg.get("height")) == ("-1 0 162 14", "162", "14")
    rect, *error, null = svg
    start, end = sorted((80.0, 80 * (1 + value)))
    assert (float(rect.get("x", -1)), float(rect.get("width", -1))) == (start, end - start)
    assert rect.get("class") == ("d26" if value > 0 else "d6")
    ends = sem if isinstance(sem, tuple) else sem and (value - 0.25, value + 0.25)
    if ends:
        a, b = (round(80 * (1 + v), 1) for v in ends)
        assert places(error[0].get("d", "")) == [
            ("M", a, 7),
            ("H", b, None),
            ("M", a, 4),
            ("v", 6, None),
            ("M", b, 4),
            ("v", 6, None),
        ]
    assert len(error) == bool(ends)
    assert places(null.get("d", "")) == [("M", 100, 0), ("v", 14, None)]
