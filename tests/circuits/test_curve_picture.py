"""The picture of faithfulness over sizes."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pandas as pd
import pytest

from interp.draw.curve_picture import curve


def made(**more) -> pd.DataFrame:
    return pd.DataFrame(
        {"heads": [1, 2, 4, 8], "faithfulness": [0.0, 0.5, 1.0, 1.0], "random": [0, 0, 0.5, 1],
         "ablation": "corrupted"} | more
    )  # fmt: skip


def places(svg: str, line: int) -> list[tuple[float, float]]:
    found = re.findall(r'<polyline points="([^"]*)"', svg)[line]
    return [tuple(map(float, p.split(","))) for p in found.split()]  # type: ignore[misc]


def test_points_stand_where_the_numbers_say() -> None:
    svg = curve(made(), "heads")
    ET.fromstring(svg)
    (x1, y1), (x2, y2), (x3, y3), (x4, y4) = places(svg, 0)
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2) == pytest.approx(x4 - x3, abs=0.2)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)  # higher is nearer to the top
    assert y3 == y4 < y1
    assert [y for _, y in places(svg, 1)][:2] == [y1, y1]
    assert "faithfulness with heads at work, others corrupted" in svg
    assert "4 heads: 1.000" in svg
    assert "<polygon" not in svg


def test_a_band_and_what_goes_far_stay_inside() -> None:
    wild = made(
        faithfulness=[-50, 3.0, 1.0, 1.0], random_low=[-9, -1, 0, 1], random_high=[9, 1, 1, 1]
    )
    svg = curve(wild, "heads")
    ET.fromstring(svg)
    assert "<polygon" in svg
    numbers = re.findall(r'points="([^"]*)"', svg)
    assert all(0 <= float(y) <= 280 for text in numbers for y in re.findall(r",([\d.-]+)", text))
    assert "1 heads: -1.000" in svg


def test_labels_have_room() -> None:
    sizes = [24, 48, 120, 240, 480, 1199, 2398, 4796, 11990, 23981]
    rows = pd.DataFrame(
        {"edges": sizes, "faithfulness": 0.5, "random": 0.1, "ablation": "corrupted"}
    )
    svg = curve(rows, "edges")
    at = [
        float(x) for x, n in re.findall(r'<text x="([\d.]+)"[^>]*>(\d+)</text>', svg) if int(n) > 1
    ]
    assert all(abs(a - b) >= 44 for i, a in enumerate(at) for b in at[:i])
    assert ">23981</text>" in svg
