"""The report as a reader meets it: on a screen wide and narrow, light and dark, and on paper."""

from __future__ import annotations

import numpy as np
import pytest
from core.examples import small
from report.browser import needs_browser
from report.looking import CROWDED, CUT, PALE, SQUEEZED

from interp.core.table import HeadTable
from interp.report import write_report

pytestmark = [pytest.mark.slow, needs_browser]
A4 = 718  # CSS pixels between margins of one centimetre


@pytest.fixture(scope="module")
def report_page(tmp_path_factory):
    """Three models of other shapes, metrics with long units, several heads that stand out."""
    draw = np.random.default_rng(0)
    tables = []
    shapes = {"hub/a-model-with-a-long-name": (12, 12), "b": (2, 4), "wide": (30, 64)}
    for model, shape in shapes.items():
        for metric in ("induction", "a_metric_of_a_long_name:with=1", "third"):
            score = draw.uniform(0.04, 0.06, shape)
            score[1, :3] = 0.9871
            tables.append(
                small(
                    model,
                    metric,
                    scores=score,
                    n=16,
                    null=0.05,
                    null_sem=0.0012,
                    sem=0.00081,
                    unit="share of the usual norm of values",
                    provenance={"seed": 0},
                )
            )
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_report(HeadTable.concat(tables), path, command="interp atlas results -o page.html")
    return path


def on_paper(browser, width=A4):
    browser.emulate("light", width)
    asked = {"cmd": "Emulation.setEmulatedMedia", "params": {"media": "print"}}
    browser.call("POST", "/goog/cdp/execute", asked)


@pytest.fixture
def paper(browser):
    on_paper(browser)
    yield browser
    asked = {"cmd": "Emulation.setEmulatedMedia", "params": {"media": ""}}
    browser.call("POST", "/goog/cdp/execute", asked)


def test_nothing_is_cut_off_on_paper(paper, report_page) -> None:
    paper.open(report_page)
    assert paper.run("return matchMedia('print').matches")
    paper.run("for (const d of document.querySelectorAll('details')) d.open = true")
    assert paper.run("return document.querySelectorAll('table.metrics tbody tr').length") == 27
    assert paper.run(CUT) == []
    assert paper.run(SQUEEZED) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_on_a_screen_everything_can_be_read(browser, report_page, theme, width) -> None:
    browser.emulate(theme, width)
    browser.open(report_page)
    browser.run("for (const d of document.querySelectorAll('details')) d.open = true")
    # letters on the cells of a map and on nodes: their colours are tested with the palette
    browser.run("for (const t of document.querySelectorAll('.cells text, text.sign')) t.remove()")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run(PALE) == []
    assert browser.run(CUT) == []
    assert browser.run(SQUEEZED) == []
    assert browser.run(CROWDED) == []
    size = "const map = document.querySelector('#model-2 svg.map');"
    size += "const scale = map.getBoundingClientRect().width / map.viewBox.baseVal.width;"
    size += "return scale * parseFloat(getComputedStyle(map.querySelector('text')).fontSize)"
    assert browser.run(size) >= 7.5


def test_axes_have_names_and_cells_a_size_that_a_finger_hits(browser, report_page) -> None:
    browser.emulate("light", 1400)
    browser.open(report_page)
    map_ = "document.querySelector('#model-0 svg.map')"
    texts = f"return [...{map_}.querySelectorAll('.axis')].map((t) => t.textContent)"
    assert browser.run(texts) == ["head", "layer"]
    size = f"const map = {map_}; return Number(map.dataset.cell) * "
    size += "map.getBoundingClientRect().width / map.viewBox.baseVal.width"
    assert browser.run(size) == 24  # WCAG 2.2, 2.5.8: targets 24 apart


BAD = """<!doctype html><html><body style="background:#fff"><p style="color:#999">too pale</p>
<p style="color:#595959">dark enough</p><div style="overflow:hidden;width:20px;white-space:nowrap">
a text that is cut off</div><table><tr><td style="max-width:1em;overflow-wrap:anywhere">broken</td>
</tr></table><svg class="map" width="50" height="20"><text x="0" y="10">first</text>
<text x="3" y="10">second</text></svg></body></html>"""


def test_the_questions_see_what_is_wrong(browser, tmp_path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(BAD, encoding="utf-8")
    browser.emulate("light", 800)
    browser.open(path)
    assert browser.run(PALE) == ["P 2.85: too pale"]
    assert len(browser.run(CUT)) == 1
    assert len(browser.run(SQUEEZED)) == 1
    assert "first lies on second" in browser.run(CROWDED)
