"""The page in a real browser, through chromedriver; skipped where Debian's chromium is absent."""

import math

import pytest
from core.examples import small
from report.browser import DOWN, ELEMENT, ENTER, ESCAPE, RIGHT, needs_browser

import interp.report.heads
from interp.core.table import HeadTable
from interp.report import write_report

pytestmark = [
    pytest.mark.slow,
    needs_browser,
]


@pytest.mark.parametrize("cells", [10**6, 1])
def test_opens_offline_and_answers_to_the_keyboard(browser, tmp_path, monkeypatch, cells):
    monkeypatch.setattr(interp.report.heads, "CELLS_AS_ELEMENTS", cells)
    name = "<script>alert(1)</script>"
    table = HeadTable.concat([small(name, null_sem=0.002), small("b")])
    path = tmp_path / "page.html"
    write_report(table, path, ranges={"induction": (0, 1)})
    browser.open(path)
    assert browser.text("#m0 h2") == name
    assert browser.fetched() == {path.as_uri()}
    assert browser.log("browser") == []  # no error on the console

    area = browser.find("svg.map")
    browser.type("svg.map", RIGHT)
    assert browser.text("output").startswith("L0H1: 0.900 ± 0.01 fraction; null 0.050")
    browser.type("svg.map", DOWN + DOWN + DOWN)
    assert browser.text("output").startswith("L1H1: 0.200 ± 0.01 fraction; null 0.050")
    move = {"type": "pointerMove", "duration": 0, "origin": {ELEMENT: area.rpartition("/")[2]}}
    # From the middle of the map (44 + 2 x 24 + 2 wide, 34 + 2 x 24 + 2 high) to L1H0.
    actions = [{**move, "x": 56 - 47, "y": 70 - 42}]
    mouse = {"type": "pointer", "id": "mouse", "actions": actions}
    browser.call("POST", "/actions", {"actions": [mouse]})
    assert browser.text("output").startswith("L1H0: 0.500 ± 0.01 fraction")


@pytest.mark.parametrize("cells", [10**6, 1])
def test_a_click_or_enter_opens_the_card_of_a_head(browser, tmp_path, monkeypatch, cells):
    monkeypatch.setattr(interp.report.heads, "CELLS_AS_ELEMENTS", cells)
    name = "<script>alert(1)</script>"
    table = HeadTable.concat([small(), small(metric=name, scores=[[3.0, 2.0], [1.0, 4.0]])])
    write_report(table, tmp_path / "page.html", ranges={"induction": (0, 1)})
    browser.open(tmp_path / "page.html")
    assert browser.run("return document.querySelector('.card').hidden")
    browser.type("svg.map", RIGHT + ENTER)  # to L0H1
    rows = "return [...document.querySelectorAll('.card tbody tr')].map("
    rows += "r => [...r.cells].map(c => c.textContent))"
    assert browser.text(".card h4") == "L0H1"
    assert browser.run(rows) == [
        ["induction", "0.900 ± 0.01 fraction; null 0.050; n 8", "1 of 4"],
        [name, "2.000 ± 0.01 fraction; null 0.050; n 8", "3 of 4"],
    ]
    assert browser.run("return document.activeElement.textContent") == "Close"
    browser.type(".card button", ESCAPE)
    assert browser.run("return document.querySelector('.card').hidden")
    assert browser.run("return document.activeElement.className.baseVal") == "map"
    browser.click("svg.map")
    assert not browser.run("return document.querySelector('.card').hidden")


@pytest.fixture
def phone(browser):
    browser.emulate("light", 390)
    browser.touch(on=True)
    yield browser
    browser.touch(on=False)
    browser.emulate("light", 1200)


# Where a cell lies in the window, by the numbers that its map states, whatever it is drawn with.
PLACE = """
const map = document.querySelectorAll("svg.map")[arguments[0]];
map.scrollIntoView({ block: "center" });
const box = map.getBoundingClientRect(), size = Number(map.dataset.cell);
const scale = box.width / map.viewBox.baseVal.width;
return [box.left + scale * (44 + (arguments[2] + 0.5) * size),
        box.top + scale * (34 + (arguments[1] + 0.5) * size)];
"""


@pytest.mark.parametrize("cells", [10**6, 1])
def test_a_tap_opens_the_head_under_the_finger(phone, tmp_path, monkeypatch, cells):
    """A finger that comes down has not moved over the map before, unlike a mouse."""
    monkeypatch.setattr(interp.report.heads, "CELLS_AS_ELEMENTS", cells)
    shapes = {"induction": (2, 2), "wide": (12, 30), "third": (3, 1)}
    tables = []
    for model, (layers, heads) in shapes.items():
        scores = [[0.01 * x + 0.02 * y for x in range(heads)] for y in range(layers)]
        tables.append(small(model, scores=scores))
    write_report(HeadTable.concat(tables), tmp_path / "page.html", ranges={"induction": (0, 1)})
    phone.open(tmp_path / "page.html")
    card = "return [...document.querySelectorAll('.card')].map("
    card += "c => c.hidden ? null : c.querySelector('h4').textContent)"
    told = "return document.querySelectorAll('output')[arguments[0]].textContent"
    for at, layer, head in [(0, 1, 1), (0, 0, 1), (1, 11, 29), (1, 7, 4), (1, 0, 0), (2, 2, 0)]:
        phone.tap(*phone.run(PLACE, at, layer, head))
        assert phone.run(card)[at] == f"L{layer}H{head}"
        assert phone.run(told, at).startswith(f"L{layer}H{head}: ")
    # the names of the axes are no head
    phone.open(tmp_path / "page.html")
    x, y = phone.run(PLACE, 0, 0, 0)
    phone.tap(x, y - 26)
    assert phone.run(card) == [None, None, None]


def test_tables_sort_by_a_click_on_a_column(browser, tmp_path):
    table = small(scores=[[0.1, 0.9], [10.5, math.nan]], n=[[8, 8], [8, 0]])
    write_report(table, tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    browser.run("document.querySelector('details:last-of-type').open = true")
    column = "details table.sortable th:nth-child(2) button"
    read = "return [...document.querySelectorAll('details table.sortable tbody th')]"
    read += ".map(c => c.textContent)"
    orders = []
    for _ in range(2):
        browser.click(column)
        orders.append(browser.run(read))
    # as numbers, not as texts; what has none is last either way
    assert orders == [["L1H0", "L0H1", "L0H0", "L1H1"], ["L0H0", "L0H1", "L1H0", "L1H1"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_fits_the_window_in_both_themes(browser, tmp_path, theme, width):
    wide = small("long/" + "x" * 200, scores=[[0.1] * 64] * 3, provenance={"hash": "f" * 64})
    write_report(wide, tmp_path / "page.html")
    browser.emulate(theme, width)
    browser.open(tmp_path / "page.html")
    script = "const b = getComputedStyle(document.body);"
    script += "return [document.documentElement.scrollWidth, b.backgroundColor, b.color]"
    found = browser.run(script)
    colours = [[int(n) for n in text[4:-1].split(",")] for text in found[1:]]
    assert found[0] <= width
    assert (sum(colours[0]) > sum(colours[1])) == (theme == "light")
    assert len(browser.screenshot()) > 5000
