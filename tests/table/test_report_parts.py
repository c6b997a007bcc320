"""Findings, models side by side, every number, data to take away, and the budget of a page."""

import csv
import io
import math
import re
from urllib.parse import unquote

import numpy as np
import pytest
from table.examples import small
from table.test_report import HOSTILE, Page

import interp.report
from interp.errors import OptionError
from interp.report import render
from interp.report.findings import findings, interval
from interp.table import HeadTable

MANY = np.full((4, 8), 0.05) + np.linspace(0, 0.01, 32).reshape(4, 8)


def with_heads(*heads, model="m", metric="induction", **options):
    scores = MANY.copy()
    for (layer, head), value in heads:
        scores[layer, head] = value
    return small(model, metric, scores=scores, null=0.05, sem=0.01, n=16, null_sem=0.01, **options)


def cells(page, tag="td"):
    return re.findall(rf"<{tag}[^>]*>([^<]*)</{tag}>", page)


def test_findings_name_the_heads_that_stand_out_with_their_interval():
    page = findings(with_heads(((2, 3), 0.9), ((1, 0), 0.7)), {"induction": 1.0})
    assert cells(page) == [
        "m", "induction", "L2H3, L1H0", "0.900 ± 0.01", "0.879 to 0.921", "0.050 ± 0.01", "16",
    ]  # fmt: skip


def test_where_nothing_is_to_be_found_nothing_is_said_to_be():
    page = findings(with_heads(), {"induction": 1.0})
    assert "No head stands out" in page
    assert not cells(page)


def test_findings_come_model_by_model_and_largest_first():
    weak = with_heads(((0, 0), 0.6), model="b", metric="weak")
    strong = with_heads(((3, 7), 0.95), model="b", metric="strong")
    table = HeadTable.concat([weak, strong, with_heads(((3, 7), 0.99), model="a")])
    read = cells(findings(table, {}))
    assert list(zip(read[::7], read[1::7], strict=True)) == [
        ("b", "strong"), ("b", "weak"), ("a", "induction"),
    ]  # fmt: skip


def test_the_interval_is_that_of_student():
    low, high = interval(1.0, 0.1, 16)
    assert (low, high) == pytest.approx((1 - 0.21314495, 1 + 0.21314495), abs=1e-7)  # t(15) table
    assert interval(1.0, math.nan, 16) is None
    assert interval(1.0, 0.1, 1) is None


def strips(page):
    """Per model: x and width of each layer's rectangle, and its title."""
    found = {}
    for name, body in re.findall(
        r'<tr><th scope="row">([^<]*)</th><td><svg class="strip"(.*?)</svg>', page
    ):
        parts = re.findall(r'x="([\d.e+]+)" y="0" width="([\d.]+)"[^>]*><title>([^<]*)', body)
        found[name] = [(float(x), float(w), t) for x, w, t in parts]
    return found


def test_models_are_aligned_by_relative_depth_on_one_scale():
    two = small("two", scores=[[0.1, 0.9], [0.5, 0.2]])
    four = small("four", scores=[[0.1], [0.2], [0.3], [0.9]])
    page = render(HeadTable.concat([two, four]), ranges={"induction": (0, 1)})
    found = strips(page)
    assert [(x, w) for x, w, _ in found["two"]] == [(0, 160), (160, 160)]
    assert [(x, w) for x, w, _ in found["four"]] == [(0, 80), (80, 80), (160, 80), (240, 80)]
    assert [t for *_, t in found["two"]] == ["L0H1: 0.900 ± 0.01", "L1H0: 0.500 ± 0.01"]
    side = page.partition('id="beside"')[2].partition("</section>")[0]
    # equal scores have equal colours: 0.9 in layer 0 of one and in layer 3 of the other
    assert re.findall(r'class="(q\d+)"', side).count("q29") == 2


def test_a_metric_that_one_model_has_is_not_compared():
    table = HeadTable.concat([small("a"), small("b"), small("b", metric="other")])
    side = render(table).partition('id="beside"')[2].partition("</section>")[0]
    assert "induction" in side
    assert "other" not in side
    assert 'id="beside"' not in render(small())


def test_signed_metrics_show_the_largest_either_way():
    one = small("a", scores=[[-0.8, 0.1], [0.3, 0.0]])
    table = HeadTable.concat([one, small("b", scores=[[0.2, 0.1], [0.3, 0.0]])])
    found = strips(render(table, ranges={"induction": (-1, 1)}))
    assert [t.partition(":")[0] for *_, t in found["a"]] == ["L0H0", "L1H0"]


def test_every_number_is_a_table():
    table = HeadTable.concat([small(), small(metric="other", scores=[[1, 2], [3, math.nan]],
                                              n=[[8, 8], [8, 0]])])  # fmt: skip
    body = render(table).partition("Every number as a table")[2]
    rows = [cells(row) for row in re.findall(r"<tr>(.*?)</tr>", body)]
    assert rows[1:5] == [
        ["0.100 ± 0.01", "1.000 ± 0.01"],
        ["0.900 ± 0.01", "2.000 ± 0.01"],
        ["0.500 ± 0.01", "3.000 ± 0.01"],
        ["0.200 ± 0.01", ""],
    ]


def test_the_data_beside_a_map_are_its_numbers():
    hostile = 'a,"b"\n</script>'
    table = small(stack=hostile, scores=[[1 / 3, math.nan], [1e-7, 2.0]], n=[[8, 0], [8, 8]])
    (link,) = [a for tag, a in Page(render(table)).elements if tag == "a" and "download" in a]
    kind, _, data = link["href"].partition(",")
    assert kind == "data:text/csv;charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(unquote(data))))
    assert [r["stack"] for r in rows] == [hostile] * 4
    assert [r["score"] for r in rows] == ["0.333333333", "", "1e-07", "2"]
    assert [(r["layer"], r["head"], r["n"]) for r in rows] == [
        ("0", "0", "8"), ("0", "1", "0"), ("1", "0", "8"), ("1", "1", "8"),
    ]  # fmt: skip


def test_a_page_keeps_its_budget_and_says_what_it_left_out():
    table = HeadTable.concat([small("m", f"metric {i}", scores=MANY) for i in range(20)])
    full = len(render(table).encode())
    sizes, texts = [], []
    budget = full
    for _ in range(3):
        page = render(table, budget=budget)
        assert len(page.encode()) <= budget
        sizes.append(len(page.encode()))
        texts.append(Page(page).text)
        budget = sizes[-1] - 1
    assert sizes[0] == full
    assert "would be larger" not in texts[0]
    assert "are left out here" in texts[1]
    assert "a map is a picture" in texts[2]
    for text in texts[1:]:
        assert "With more detail the page would be larger than" in text
    with pytest.raises(OptionError, match=r"with the least detail, more than 0\.01 MB; give fewer"):
        render(table, budget=10_000)


def test_the_last_detail_has_no_maps(monkeypatch):
    table = HeadTable.concat([small("m", f"metric {i}", scores=MANY) for i in range(20)])
    monkeypatch.setattr(interp.report, "CELLS_AS_ELEMENTS", 1)
    monkeypatch.setattr(interp.report, "CELLS_WITH_NUMBERS", 2)
    pictures = len(render(table).encode())
    page = render(table, budget=pictures - 1)
    assert "there are no maps" in page
    assert 'class="map"' not in page


def test_hostile_names_are_text_in_every_part():
    table = HeadTable.concat(
        [with_heads(((0, 0), 0.9), model=m, metric=HOSTILE, stack=HOSTILE) for m in (HOSTILE, "b")]
    )
    read = Page(render(table))
    assert len(read.of["script"]) == 1
    assert "img" not in read.of
    assert read.text.count(HOSTILE.strip()) > 5
