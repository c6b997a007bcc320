"""Every page on screens wide and narrow, light and dark, and on paper: what its reader meets.

INTERP_SCREENSHOTS names a folder for the pictures; by default they are temporary.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from report.browser import needs_browser
from report.every_page import PAGES, SERVED, filling
from report.looking import CUT, PALE, PICTURES, POINTED, REACHED
from report.test_atlas_browser import axe
from report.test_looks import A4
from sampled import sampled

pytestmark = [pytest.mark.slow, needs_browser]
TAB = "\ue004"
MOST = 60  # controls that are reached one after another
SCROLLED = 40  # boxes that scroll, at which browsers stop too
OPEN = "for (const d of document.querySelectorAll('details')) d.open = true"
# letters on the cells of a map and on nodes: their colours are tested with the palette
PLAIN = "for (const t of document.querySelectorAll('.cells text, text.sign')) t.remove()"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return the file of a page, written once."""
    files: dict[str, Path] = {}

    def path_of(name: str) -> Path:
        if name not in files:
            files[name] = tmp_path_factory.mktemp(name) / "page.html"
            PAGES[name][1](files[name])
        return files[name]

    return path_of


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    asked = os.environ.get("INTERP_SCREENSHOTS")
    folder = Path(asked) if asked else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_every_page_has_an_example() -> None:
    assert filling() == {filled for filled, _ in PAGES.values()} | SERVED


def whole(browser, width: int, theme: str) -> bytes:
    """A picture of the page from top to bottom, up to 4,000 pixels."""
    height = browser.run("return document.documentElement.scrollHeight")
    browser.emulate(theme, width, min(height, 4000))
    content = browser.screenshot()
    browser.emulate(theme, width)
    return content


@pytest.mark.parametrize("name", sampled(PAGES))
def test_on_screens_and_paper(browser, written, pictures, name) -> None:
    path = written(name)
    for width in (1400, 390):
        for theme in ("light", "dark"):
            browser.emulate(theme, width)
            browser.open(path)
            picture = whole(browser, width, theme)
            (pictures / f"{name}-{width}-{theme}.png").write_bytes(picture)
            assert browser.fetched() == {path.as_uri()}
            assert browser.log("browser") == []
            browser.run(OPEN), browser.run(PLAIN)
            assert browser.run("return document.documentElement.scrollWidth") <= width
            for question in (PALE, CUT):
                assert browser.run(question) == [], (width, theme)
    browser.emulate("light", A4)
    paper = {"cmd": "Emulation.setEmulatedMedia", "params": {"media": "print"}}
    browser.call("POST", "/goog/cdp/execute", paper)
    browser.open(path)
    (pictures / f"{name}-print.png").write_bytes(browser.screenshot())
    assert browser.run(CUT) == []
    paper["params"] = {"media": ""}
    browser.call("POST", "/goog/cdp/execute", paper)


@pytest.mark.parametrize("name", sampled(PAGES))
def test_the_answer_is_read_first(browser, written, name) -> None:
    browser.emulate("light", 390)
    browser.open(written(name))
    first = browser.run(
        "const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);"
        "while (walk.nextNode()) { const e = walk.currentNode.parentElement;"
        "if (walk.currentNode.textContent.trim() && e.getClientRects().length)"
        "return [e.closest('h1') !== null, e.closest('h1, p, div').textContent.trim()]; }"
    )
    assert first[0], first[1]
    assert first[1] != browser.run("return document.title")
    assert re.search(r"\d|\bnone\b|\bno\b", first[1])


@pytest.mark.parametrize("name", sampled(PAGES))
def test_the_keyboard_reaches_every_control(browser, written, name) -> None:
    browser.emulate("light", 1400)
    browser.open(written(name))
    assert browser.run(POINTED) == []
    count = min(browser.run(REACHED), MOST)
    wanted, seen = set(map(str, range(count))), set()
    for _ in range(count + SCROLLED):
        browser.press(TAB)
        seen.add(browser.run("return document.activeElement.dataset.control"))
        if wanted <= seen:
            break
    assert wanted - seen == set()


@pytest.mark.parametrize("name", sampled(PAGES))
def test_a_screen_reader_reads_every_picture(browser, written, name) -> None:
    script = axe()
    browser.emulate("light", 1400)
    browser.open(written(name))
    browser.run(OPEN)
    assert browser.run(PICTURES) == []
    if script is None:
        pytest.skip("needs axe-core (npm install --global axe-core, or its folder in NODE_PATH)")
    run = f"{script}; const done = arguments[0]; axe.run().then((r) => done(r.violations.map("
    run += "(v) => `${v.impact} ${v.id}: ${v.nodes.length} ${v.nodes[0].html.slice(0, 160)}`)))"
    found = browser.call("POST", "/execute/async", {"script": run, "args": []})
    assert [x for x in found if x.startswith(("serious", "critical"))] == []


@pytest.mark.parametrize("name", sampled(PAGES))
def test_without_scripts_the_answer_and_the_numbers_stay(scriptless, written, name) -> None:
    scriptless.emulate("light", 1400)
    scriptless.open(written(name))
    assert scriptless.run("return document.querySelector('h1').getClientRects().length")
    rows = scriptless.run(
        "return document.querySelectorAll('td, .map rect, .map path, dd, image').length"
    )
    assert rows > 0
