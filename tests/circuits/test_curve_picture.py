"""The figure of faithfulness over sizes, and its picture."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pandas as pd
import pytest

from interp.draw.charts import curve
from interp.draw.figure import svg
from interp.draw.svg import standing


def made(**more) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "heads": [1, 2, 4, 8],
            "faithfulness": [0.0, 0.5, 1.0, 1.0],
            "random": [0, 0, 0.5, 1],
            "ablation": "corrupted",
        }
        | more
    )


def places(svg: str, line: int) -> list[tuple[float, float]]:
    found = re.findall(r'<polyline points="([^"]*)"', svg)[line]
    return [tuple(map(float, p.split(","))) for p in found.split()]  # type: ignore[misc]


def test_points_stand_where_the_numbers_say() -> None:
    picture = svg(curve(made(), "heads"))
    ET.fromstring(standing(picture, style=True))
    (x1, y1), (x2, y2), (x3, y3), (x4, y4) = places(picture, 0)
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2) == pytest.approx(x4 - x3, abs=0.2)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)  # higher is nearer to the top
    assert y3 == y4 < y1
    assert [y for _, y in places(picture, 1)][:2] == [y1, y1]
    assert "heads that stay intact, others corrupted" in picture
    assert "<title>4, 1</title>" in picture
    assert "<polygon" not in picture
    assert "cut off" not in picture


def test_a_band_and_what_goes_far_stay_inside() -> None:
    wild = made(
        faithfulness=[-50, 3.0, 1.0, 1.0], random_low=[-9, -1, 0, 1], random_high=[9, 1, 1, 1]
    )
    picture = svg(curve(wild, "heads"))
    ET.fromstring(standing(picture))
    assert "<polygon" in picture
    high = float(re.search(r'viewBox="0 0 \d+ (\d+)', picture)[1])
    numbers = re.findall(r'points="([^"]*)"', picture)
    ys = [float(y) for text in numbers for y in re.findall(r",([\d.-]+)", text)]
    assert all(0 <= y <= high for y in ys)
    assert "<title>1, -1</title>" in picture
    assert "cut off at -1 and 2" in picture


def test_labels_have_room() -> None:
    sizes = [24, 48, 120, 240, 480, 1199, 2398, 4796, 11990, 23981]
    rows = pd.DataFrame(
        {"edges": sizes, "faithfulness": 0.5, "random": 0.1, "ablation": "corrupted"}
    )
    picture = svg(curve(rows, "edges"))
    marks = re.findall(r'<text class="soft" x="([\d.]+)"[^>]*text-anchor="middle">(\d+)<', picture)
    at = [(float(x), len(n)) for x, n in marks]
    assert len(at) > 4
    for i, (a, letters) in enumerate(at):
        assert all(abs(a - b) >= 7 * letters for b, _ in at[:i])
    assert marks[-1][1] == "23981"
