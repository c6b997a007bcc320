import math
import re

import numpy as np
import plotly.graph_objects as go
import pytest
from core.examples import small
from together import over

from interp.core.errors import OptionError, UnknownName
from interp.core.table import HeadTable
from interp.draw.charts import heatmap, tooltip
from interp.draw.colours import BINS, Scale, declared_range, palette

# Machado, Oliveira, Fernandes 2009, severity 1.0, on linear RGB.
DEUTERANOPIA = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413]]
DEUTERANOPIA += [[-0.011820, 0.042940, 0.968881]]
PROTANOPIA = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216]]
PROTANOPIA += [[-0.003882, -0.048116, 1.051998]]


def linear(colours):
    srgb = np.array([[int(c[at : at + 2], 16) / 255 for at in (1, 3, 5)] for c in colours])
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def luminance(colours):
    return linear(colours) @ [0.2126, 0.7152, 0.0722]


NUMBER = r"(-?[\d.]+(?:e[-+]?\d+)?)"


@over("scores", [[0.2, 0.4], [-0.2, 0.5], [-3.0, -1.5], [0.0], [7.0, 7.0]])
@over("low", [None, -1.0, 0.0, 0.5])
@over("high", [None, 1.0, 2.0, -0.25])
def test_what_is_said_of_a_scale_is_what_it_is(scores, low, high):
    """The ends in words are those that are drawn, and each end is what it is said to be."""
    if low is not None and high is not None and low > high:
        return
    scale = Scale.fit(scores, (low, high))
    if (scale.low, scale.high) == (low, high):
        assert scale.note == ""
        return
    found = re.match(rf"colours: from {NUMBER}.*? to {NUMBER}", scale.note)
    assert [float(x) for x in found.groups()] == [scale.low, scale.high]
    sizes = [abs(x) for x in scores]
    said = {
        "the metric's lowest value": scale.low == low,
        "the lowest score on this page": scale.low == min(scores),
        "to [^ ]*, the metric's highest value": scale.high == high,
        "the highest score on this page": scale.high == max(scores),
        "the largest size of a score on this page": scale.high == max(sizes),
        "is the size of the metric's lowest value": low == scale.low == -scale.high,
        "is the metric's highest value": scale.high == high,
        "no score on this page is above": max(scores) <= scale.low,
        "as far below 0 as above": scale.signed and scale.low == -scale.high,
    }
    for words, true in said.items():
        assert true or not re.search(words, scale.note), scale.note
    assert any(re.search(words, scale.note) for words in said)


def test_a_figure_says_what_its_scale_is_and_what_it_cuts():
    table = small(scores=[[0.5, math.nan], [-0.25, 7.0]], n=[[8, 0], [8, 8]])
    assert table.plot("induction", declared=(-1, 1)).layout.title.text == (
        "1 beyond the range, shown as its end"
    )
    said = table.plot("induction").layout.title.text
    assert said.startswith("colours: from -7 to 7, as far below 0 as above")
    assert said.endswith("in this figure")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_more_is_always_further_from_the_page(theme):
    away = -1 if theme == "light" else 1
    one_sided = luminance(palette(False, theme))
    assert (np.diff(one_sided) * away > 0).all()
    two_sided = luminance(palette(True, theme))
    middle = BINS // 2
    assert (np.diff(two_sided[middle:]) * away > 0).all()
    assert (np.diff(two_sided[: middle + 1]) * away < 0).all()
    assert palette(True, theme)[middle] == palette(False, theme)[0]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("eye", [np.eye(3), DEUTERANOPIA, PROTANOPIA])
def test_signs_are_told_apart_by_every_eye(theme, eye):
    """Halfway to either end, the two sides differ in blue against yellow, as this eye sees them."""
    colours = palette(True, theme)
    below, above = linear([colours[BINS // 4], colours[-1 - BINS // 4]]) @ np.transpose(eye)
    yellow = [(red + green) / 2 - blue for red, green, blue in (below, above)]
    assert yellow[0] > 0.05
    assert yellow[1] < -0.05


@pytest.mark.parametrize(
    ("scores", "declared", "expected"),
    [
        ([0.2, 0.4], (0, 1), Scale(0, 1, False)),
        ([0.2, 0.4], (-1, 1), Scale(-1, 1, True)),
        ([0.2, 0.4], (-0.5, 2), Scale(-2, 2, True)),
        ([3.0, 7.0], (0, None), Scale(0, 7, False)),
        ([3.0, 7.0], (0, math.inf), Scale(0, 7, False)),
        ([3.0, 7.0], None, Scale(0, 7, False)),
        ([-3.0, 7.0], None, Scale(-7, 7, True)),
        ([-3.0, -7.0], None, Scale(-7, 7, True)),
        ([-3.0, 0.5], (None, 1), Scale(-3, 3, True)),
        ([2.0, math.nan], (1, None), Scale(1, 2, False)),
        ([0.0], None, Scale(0, 1, False)),
        ([], None, Scale(0, 1, False)),
    ],
)
def test_colour_range(scores, declared, expected):
    assert Scale.fit(scores, declared) == expected


def test_a_range_the_wrong_way_round():
    with pytest.raises(OptionError, match=r"not from 1\.0 to 0\.0"):
        Scale.fit([0.5], (1, 0))


def test_bins_cover_the_range_and_show_what_is_beyond():
    scale = Scale(-1, 1, True)
    scores = np.array([-9.0, -1, 0, 0.5, 1, 9, np.nan])
    assert scale.bins(scores).tolist() == [0, 0, 16, 24, 32, 32, -1]
    assert scale.beyond(scores) == 2
    assert Scale(0, 1, False).beyond(np.array([1 + 1e-7])) == 0


def test_a_label_with_options_has_the_range_of_its_metric():
    ranges = {"a": (0, 1), "b": (0, 2), "b:k=1": (0, 3)}
    labels = ("a", "a:k=1", "b:k=1", "c")
    assert [declared_range(ranges, label) for label in labels] == [(0, 1), (0, 1), (0, 3), None]


def test_tooltip_says_all_about_a_head():
    row = small(scores=[[0.912, 0.5]], null_sem=0.002, n_kv_heads=1).to_pandas().to_dict("records")
    assert tooltip(row[0]) == "L0H0: 0.912 ± 0.01 fraction; null 0.050 ± 0.002; n 8"
    assert tooltip(row[1]).startswith("L0H1 (kv head 0): 0.500")
    assert tooltip(row[0] | {"null": math.nan, "unit": "", "sem": math.nan}) == "L0H0: 0.912; n 8"
    assert "no score" in tooltip(row[0] | {"n": 0, "score": math.nan})


def test_figure_shows_the_matrix():
    table = HeadTable.concat([small(), small("<b>x</b>", scores=[[-0.5, 0.25], [0.5, 0.0]])])
    figure = table.plot("induction", declared=(-1, 1))
    assert isinstance(figure, go.Figure)
    for panel, model in zip(figure.data, table.models, strict=True):
        expected = table.matrix("induction", model=model)
        np.testing.assert_array_equal(panel.z, expected.astype(np.float32))
    assert figure.data[0].text[0][1] == "L0H1: 0.900 ± 0.01 fraction; null 0.050; n 8"
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (-1, 1)
    assert figure.layout.yaxis.autorange == figure.layout.yaxis2.autorange == "reversed"
    assert figure.layout.yaxis.dtick == figure.layout.xaxis.dtick == 1  # no half a layer
    titles = [note.text for note in figure.layout.annotations]
    assert titles == ["tiny decoder", "&lt;b>x&lt;/b> decoder"]
    assert len(heatmap(table, "induction", model="tiny").data) == 1
    with pytest.raises(UnknownName, match="unknown metric"):
        table.plot("x")


def test_names_of_metrics_and_units_are_text_in_the_figure():
    figure = small(metric="a<b", unit="<i>per</i> & token").plot("a<b")
    title = figure.layout.coloraxis.colorbar.title.text
    assert title == "a&lt;b<br>&lt;i>per&lt;/i> &amp; token"
