"""Findings, models side by side, every number, data to take away, and the budget of a page."""

import csv
import io
import math
import re
from urllib.parse import unquote

import numpy as np
import pytest
from core.examples import small
from report.test_report import HOSTILE, Page

import interp.report.heads
from interp.core.errors import OptionError
from interp.core.table import HeadTable
from interp.report import heads_page
from interp.report.findings import findings, interval

MANY = np.full((4, 8), 0.05) + np.linspace(0, 0.01, 32).reshape(4, 8)


def with_heads(*heads, model="m", metric="induction", **options):
    scores = MANY.copy()
    for (layer, head), value in heads:
        scores[layer, head] = value
    return small(model, metric, scores=scores, null=0.05, sem=0.01, n=16, null_sem=0.01, **options)


def cells(page, tag="td"):
    texts = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", page)
    return [re.sub(r"<[^>]*>", "", text) for text in texts]


def test_findings_name_the_heads_that_stand_out_with_their_effect():
    page = findings(with_heads(((2, 3), 0.9), ((1, 0), 0.7)), {"induction": 1.0})
    # t(15) = 2.13145 times the root of 0.01 ** 2 + 0.01 ** 2
    assert cells(page) == [
        "induction fraction", "L2H3, L1H0", "0.900 ± 0.01", "0.050 ± 0.01",
        "+0.850 [+0.820, +0.880]", "16",
    ]  # fmt: skip
    two = findings(
        HeadTable.concat([with_heads(((2, 3), 0.9)), with_heads(model="other")]), {"induction": 1.0}
    )
    assert cells(two)[0] == "m"  # a model is named where there are several
    assert len(cells(two, "th")) == len(cells(page, "th")) + 1 == len(cells(two))


def test_a_head_below_its_null_is_said_to_be_below():
    low = with_heads(((2, 3), -0.6), ((1, 1), -0.5))
    assert cells(findings(low, {}))[1:5:3] == ["L2H3, L1H1", "-0.650 [-0.680, -0.620]"]


def test_an_effect_without_an_error_has_no_interval():
    exact = small(scores=np.eye(8) + 0.001 * np.arange(64).reshape(8, 8), sem=math.nan, n=1,
                  null=0.001 * np.arange(64).reshape(8, 8))  # fmt: skip
    assert cells(findings(exact, {}))[-2:] == ["+1.000", "exact"]


def test_the_ends_of_a_narrow_interval_are_told_apart():
    narrow = with_heads(((2, 3), 0.999))
    frame = narrow.to_pandas().assign(sem=4e-6, null_sem=3e-6)
    [line] = [cells(findings(HeadTable(frame, narrow.provenance), {"induction": 1.0}))]
    assert line[4] == "+0.949000 [+0.948989, +0.949011]"


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
        ("b", "strong fraction"), ("b", "weak fraction"), ("a", "induction fraction"),
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
    page = heads_page(HeadTable.concat([two, four]), ranges={"induction": (0, 1)})
    found = strips(page)
    assert [(x, w) for x, w, _ in found["two"]] == [(0, 160), (160, 160)]
    assert [(x, w) for x, w, _ in found["four"]] == [(0, 80), (80, 80), (160, 80), (240, 80)]
    assert [t for *_, t in found["two"]] == ["L0H1: 0.900 ± 0.01", "L1H0: 0.500 ± 0.01"]
    side = page.partition('id="beside"')[2].partition("</section>")[0]
    # equal scores have equal colours: 0.9 in layer 0 of one and in layer 3 of the other
    assert re.findall(r'class="(q\d+)"', side).count("q29") == 2


def test_a_metric_that_one_model_has_is_not_compared():
    table = HeadTable.concat([small("a"), small("b"), small("b", metric="other")])
    side = heads_page(table).partition('id="beside"')[2].partition("</section>")[0]
    assert "induction" in side
    assert "other" not in side
    assert 'id="beside"' not in heads_page(small())


def test_numbers_of_prompts_that_differ_are_said_to():
    table = HeadTable.concat(
        [small("a"), small("b", n=[[8, 8], [0, 24]], scores=[[1, 2], [math.nan, 3]])]
    )
    assert "best head of each layer; n 8 to 24; colours: from 0 to 3, the highest" in heads_page(
        table
    )
    none = [small(m, scores=[[math.nan]], n=[[0]]) for m in "ab"]
    side = heads_page(HeadTable.concat(none)).partition('id="beside"')[2].partition("</section>")[0]
    assert "no head has a score" in side
    assert "of each layer; colours" in side


def test_signed_metrics_show_the_largest_either_way():
    one = small("a", scores=[[-0.8, 0.1], [0.3, 0.0]])
    table = HeadTable.concat([one, small("b", scores=[[0.2, 0.1], [0.3, 0.0]])])
    found = strips(heads_page(table, ranges={"induction": (-1, 1)}))
    assert [t.partition(":")[0] for *_, t in found["a"]] == ["L0H0", "L1H0"]


def test_of_a_signed_metric_the_best_is_farthest_from_its_null():
    """As in the tables of top heads: L1H0 scores less either way, but more than where there is
    nothing to find."""
    both = [small(m, scores=[[-0.95], [0.4]], null=[[-0.93], [0.0]]) for m in "ab"]
    page = heads_page(HeadTable.concat(both), ranges={"induction": (-1, 1)})
    side = page.partition('id="beside"')[2].partition("</section>")[0]
    assert cells(side)[1:4] == ["L1H0", "0.400 ± 0.01", "0.000"]
    assert "head farthest from its null of each layer; n 8<" in side
    tops = page.partition("Top heads")[2]
    assert tops.partition('<th scope="row">')[2].startswith("L1H0")


def test_of_a_metric_that_means_something_low_the_lowest_head_of_each_layer_is_shown():
    """As in the tables of top heads: a head that writes nothing scores near 0."""
    made = {"end": "low"}
    both = [small(m, scores=[[0.9, 0.2], [0.1, 0.4]], provenance=made) for m in "ab"]
    page = heads_page(HeadTable.concat(both), ranges={"induction": (0, None)})
    assert [t.partition(":")[0] for *_, t in strips(page)["a"]] == ["L0H1", "L1H0"]
    side = page.partition('id="beside"')[2].partition("</section>")[0]
    assert cells(side)[1:3] == ["L1H0", "0.100 ± 0.01"]
    assert "lowest head of each layer" in side
    assert page.partition("Top heads")[2].partition('<th scope="row">')[2].startswith("L1H0")


def test_the_page_begins_with_a_list_of_what_is_on_it():
    table = HeadTable.concat([small("a"), small("b")])
    page = heads_page(table)
    targets = re.findall(r'<li><a href="#([^"]*)">([^<]*)', page)
    assert targets == [
        ("findings", "Findings"), ("beside", "Models side by side"), ("m0", "a"), ("m1", "b"),
    ]  # fmt: skip
    for at, _ in targets:
        assert page.count(f'id="{at}"') == 1
    # maps before tables: what is looked at first
    order = [page.index(text) for text in ("Findings</h2>", "Every head</h3>", "Top heads</h3>")]
    assert order == sorted(order)
    assert "They have no metric in common" in heads_page(
        HeadTable.concat([small("a"), small("b", metric="other")])
    )


def test_every_number_is_a_table():
    table = HeadTable.concat([small(), small(metric="other", scores=[[1, 2], [3, math.nan]],
                                              n=[[8, 8], [8, 0]])])  # fmt: skip
    body = heads_page(table).partition("Every number as a table")[2]
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
    (link,) = [a for tag, a in Page(heads_page(table)).elements if tag == "a" and "download" in a]
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
    full = len(heads_page(table).encode())
    sizes, texts = [], []
    budget = full
    for _ in range(3):
        page = heads_page(table, budget=budget)
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
    with pytest.raises(OptionError, match=r"least detail, more than 0\.01 MB\. Give fewer"):
        heads_page(table, budget=10_000)


def test_the_last_detail_has_no_maps(monkeypatch):
    table = HeadTable.concat([small("m", f"metric {i}", scores=MANY) for i in range(20)])
    monkeypatch.setattr(interp.report.heads, "CELLS_AS_ELEMENTS", 1)
    monkeypatch.setattr(interp.report.heads, "CELLS_WITH_NUMBERS", 2)
    pictures = len(heads_page(table).encode())
    page = heads_page(table, budget=pictures - 1)
    assert "there are no maps" in page
    assert 'class="map"' not in page


def test_hostile_names_are_text_in_every_part():
    table = HeadTable.concat(
        [with_heads(((0, 0), 0.9), model=m, metric=HOSTILE, stack=HOSTILE) for m in (HOSTILE, "b")]
    )
    read = Page(heads_page(table))
    assert len(read.of["script"]) == 1
    assert "img" not in read.of
    assert read.text.count(HOSTILE.strip()) > 5


def test_without_a_null_nothing_is_said_of_nulls_and_intervals_are_shown():
    table = small(scores=[[0.1, 0.9], [0.5, 0.2]], null=math.nan, sem=0.1, n=8)
    page = findings(table, {"induction": 1.0})
    assert "stands out" not in page
    assert "farther" not in page
    assert "No null was computed, so no head is reported to stand out" in page
    # t(7) = 2.364624
    assert cells(page) == [
        "induction fraction", "L0H1", "0.900 ± 0.1", "[0.664, 1.136]", "8",
        "induction fraction", "L1H0", "0.500 ± 0.1", "[0.264, 0.736]", "8",
        "induction fraction", "L1H1", "0.200 ± 0.1", "[-0.036, 0.436]", "8",
    ]  # fmt: skip
    exact = small(scores=[[0.5]], null=math.nan, sem=math.nan, n=1)
    assert cells(findings(exact, {}))[3] == "no error"


def test_one_draw_of_random_weights_is_no_null_to_be_far_from():
    table = with_heads(((2, 3), 0.9), provenance={"null": "random-init"})
    page = findings(table, {"induction": 1.0})
    assert "No head stands out" not in page
    assert "The null has too few draws of random weights" in page
    both = HeadTable.concat([table, with_heads(((2, 3), 0.9), metric="judged")])
    page = findings(both, {"induction": 1.0, "judged": 1.0})
    assert cells(page)[0] == "judged fraction"
    assert "No head is judged in induction: no null, or too few draws" in page


def test_clusters_are_counted_in_intervals_and_shown():
    table = with_heads(((2, 3), 0.9), clusters=4)
    page = findings(table, {"induction": 1.0})
    # t(3) = 3.182446 times the root of 0.01 ** 2 + 0.01 ** 2
    assert cells(page)[4:] == ["+0.850 [+0.805, +0.895]", "16 in 4 clusters"]


def test_p_decides_where_there_is_one():
    p = np.full((4, 8), 0.5)
    p[2, 3] = 0.04 / 32
    table = with_heads(((2, 3), 0.9), ((1, 0), 0.9), p=p)
    assert cells(findings(table, {"induction": 1.0}))[1] == "L2H3"


def test_the_measured_rate_stands_in_the_footnote():
    from interp.core.calibration import measured, measured_error

    page = findings(with_heads(((2, 3), 0.9)), {"induction": 1.0})
    assert measured_error() in page
    assert f"of {measured()['familywise'][0]['models']} models" in page
