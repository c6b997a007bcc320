"""The viewer's pages as a reader meets them: wide and narrow, light and dark, and on paper."""

from __future__ import annotations

import numpy as np
import pytest
from report.browser import needs_browser
from report.looking import CROWDED, CUT, PALE, SQUEEZED
from report.test_atlas_browser import axe

from interp.heads.patterns import View

pytestmark = [pytest.mark.slow, needs_browser]
EVIL = "<script>alert(1)</script>"
SMALLEST = 7.5  # pixels that a letter of a map has at least


@pytest.fixture(scope="module")
def view_page(tmp_path_factory):
    """Twelve layers of twelve heads, and tokens that are long, empty, wide and hostile."""
    n = 40
    weights = np.tril(np.random.default_rng(0).random((12, 12, n, n))) + 1e-9 * np.eye(n)
    weights /= weights.sum(-1, keepdims=True)
    tokens = [EVIL, "a" * 30, "\n", "", "字" * 9, "b c", *map(str, range(n - 6))]
    path = tmp_path_factory.mktemp("view") / "view.html"
    View.of_patterns(weights, tokens, title=f"model/{EVIL}", named=["L3H4"]).save_html(path)
    return path


def opened(browser, page, theme, width):
    browser.emulate(theme, width)
    browser.open(page)
    browser.wait("return document.querySelector('.panel canvas')")
    browser.run("for (const d of document.querySelectorAll('details')) d.open = true")
    return browser


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_on_a_screen_everything_can_be_read(browser, view_page, theme, width) -> None:
    opened(browser, view_page, theme, width)
    browser.click(".panel canvas")
    browser.wait("return document.querySelector('.pair h4')")
    assert browser.run(PALE) == []
    assert browser.run(CUT) == []
    assert browser.run(SQUEEZED) == []
    assert browser.run(CROWDED) == []
    size = "const map = document.querySelector('svg.thumbs');"
    size += "const scale = map.getBoundingClientRect().width / map.viewBox.baseVal.width;"
    size += "return scale * parseFloat(getComputedStyle(map.querySelector('text')).fontSize)"
    assert browser.run(size) >= SMALLEST
    assert browser.text(".scale").startswith("0")
    assert browser.text(".scale").endswith("1 weight")
    assert browser.log("browser") == []


def test_nothing_is_cut_off_on_paper(browser, view_page) -> None:
    browser.emulate("light", 718)
    media = {"cmd": "Emulation.setEmulatedMedia", "params": {"media": "print"}}
    browser.call("POST", "/goog/cdp/execute", media)
    browser.open(view_page)
    browser.wait("return document.querySelector('.panel canvas')")
    assert browser.run(CUT) == []
    browser.call("POST", "/goog/cdp/execute", media | {"params": {"media": ""}})


def test_what_scrolls_can_be_scrolled_with_the_keyboard(browser, view_page) -> None:
    opened(browser, view_page, "light", 390)
    reached = "return [...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > "
    reached += "e.clientWidth + 1 && e.tabIndex < 0 && !e.querySelector('[tabindex=\"0\"],button'))"
    assert browser.run(f"{reached}.map((e) => e.innerHTML.slice(0, 60))") == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_screen_reader_finds_no_serious_fault(browser, view_page, theme) -> None:
    script = axe()
    if script is None:
        pytest.skip("needs axe-core (npm install --global axe-core, or its folder in NODE_PATH)")
    opened(browser, view_page, theme, 1400)
    browser.run("const s = document.querySelectorAll('.passage span'); s[30].click(); s[2].click()")
    browser.wait("return document.querySelector('.pair .others button')")
    run = f"{script}; const done = arguments[0]; axe.run().then((r) => done(r.violations.map("
    run += "(v) => `${v.impact} ${v.id}: ${v.nodes.length} ${v.nodes[0].html.slice(0, 160)}`)))"
    found = browser.call("POST", "/execute/async", {"script": run, "args": []})
    assert [x for x in found if x.startswith(("serious", "critical"))] == []
