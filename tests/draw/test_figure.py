"""Static pictures of plotly figures: what stands where, and that names are no markup."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.subplots import make_subplots

from interp.draw.figure import CELLS, svg
from interp.draw.page import text
from interp.draw.svg import standing

HOSTILE = "<script>alert(1)</script>"


def numbers(pattern: str, picture: str) -> list[float]:
    return [float(x) for x in re.findall(pattern, picture)]


def read(figure: go.Figure) -> str:
    picture = svg(figure)
    ET.fromstring(standing(picture, style=True))  # one whole document
    return picture


def test_bars_begin_at_zero_and_end_at_their_values() -> None:
    error = {"array": [0.5, 0.5, 0.5]}
    picture = read(go.Figure(go.Bar(x=["a", "b", "c"], y=[2.0, -1.0, 4.0], error_y=error)))
    heights = numbers(r'<rect [^>]*height="([\d.]+)"', picture)
    assert (
        heights[2]
        == pytest.approx(2 * heights[0], abs=0.1)
        == pytest.approx(4 * heights[1], abs=0.1)
    )
    assert "<title>b: -1</title>" in picture
    ends = re.findall(r'd="M[\d.]+ ([\d.]+)V([\d.]+)" class="error"', picture)
    assert len(ends) == 3
    low, high = map(float, ends[0])
    assert low - high == pytest.approx(heights[0] / 2, abs=0.2)  # one, where the bar is two


def test_lines_and_areas_share_their_axes() -> None:
    figure = go.Figure()
    figure.add_scatter(x=[0, 1, 1, 0], y=[0, 0, 2, 2], fill="toself", fillcolor="#ccc", name="area")
    figure.add_scatter(x=[0, 1], y=[0, 2], mode="lines+markers", name=text(HOSTILE))
    figure.add_hline(y=1, line={"color": "#000000", "dash": "dot"})
    picture = read(figure)
    [area] = re.findall(r'<polygon points="([^"]*)"', picture)
    [line] = re.findall(r'<polyline points="([^"]*)"', picture)
    assert set(line.split()) < set(area.split())
    (_, low), (_, high) = (map(float, p.split(",")) for p in line.split())
    [level] = numbers(r'd="M[\d.]+ ([\d.]+)h[\d.]+" stroke="currentColor"', picture)
    assert level == pytest.approx((low + high) / 2, abs=0.1)
    assert HOSTILE not in picture
    assert "&lt;script&gt;alert(1)" in picture


@pytest.mark.parametrize("reverse", [False, True])
def test_a_map_has_a_cell_per_number_until_they_are_too_many(reverse: bool) -> None:
    z = np.arange(6.0).reshape(2, 3)
    z[0, 1] = np.nan
    figure = go.Figure(go.Heatmap(z=z, colorscale=[[0, "#ffffff"], [1, "#000000"]]))
    if reverse:
        figure.update_yaxes(autorange="reversed")
    picture = read(figure)
    cells = re.findall(r'<rect x="[\d.]+" y="([\d.]+)"[^>]*fill="(#\w+)"><title>([^<]*)', picture)
    assert [c[2] for c in cells] == [
        "0, 0: 0",
        "0, 1: none",
        "0, 2: 2",
        "1, 0: 3",
        "1, 1: 4",
        "1, 2: 5",
    ]
    assert cells[0][1] == "#ffffff"
    assert cells[1][1] == "#b9b9b9"
    assert cells[5][1] == "#000000"
    assert (float(cells[0][0]) < float(cells[5][0])) == reverse
    many = go.Figure(
        go.Heatmap(z=np.zeros((CELLS, 2)), colorscale=[[0, "#fff000"], [1, "#000fff"]])
    )
    assert "<rect" not in read(many)


def test_plots_beside_each_other_do_not_overlap() -> None:
    figure = make_subplots(rows=1, cols=2, subplot_titles=["left", "right"])
    figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", row=1, col=1)
    figure.add_scatter(x=[0, 100], y=[5, 6], mode="lines", row=1, col=2)
    picture = read(figure)
    one, two = re.findall(r'<polyline points="([^"]*)"', picture)
    assert max(float(p.split(",")[0]) for p in one.split()) < float(two.split(",")[0])
    assert ">left<" in picture
    assert ">right<" in picture


def test_cells_lie_at_their_numbers_on_the_axis() -> None:
    """Two maps over one time, in steps of 0.1 and of 0.2 seconds, end at the same place."""
    figure = make_subplots(2, 1)
    look = {"colorscale": [[0, "#ffffff"], [1, "#000000"]], "showscale": False}
    for row, count in ((1, 10), (2, 5)):
        step = 1 / count
        x = [step * (i + 0.5) for i in range(count)]
        figure.add_trace(go.Heatmap(z=[[0.0] * count, [1.0] * count], x=x, **look), row, 1)
    drawn = read(figure)
    found = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"', drawn)
    cells = [(float(x), float(wide)) for x, _, wide in found]
    first, second = cells[:20], cells[20:]
    assert len(second) == 10
    assert min(x for x, _ in first) == pytest.approx(min(x for x, _ in second), abs=0.02)
    ends = [max(x + wide / 0.96 for x, wide in some) for some in (first, second)]
    assert ends[0] == pytest.approx(ends[1], abs=0.1)
    assert second[0][1] == pytest.approx(2 * first[0][1], abs=0.05)
    assert ">0.5</text>" in drawn
