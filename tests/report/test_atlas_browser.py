"""The atlas in a real browser: finger, mouse and keyboard, cards, search, links, comparison."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from report.atlas_sample import HOSTILE, document, model, three
from report.browser import DOWN, ENTER, ESCAPE, RIGHT, needs_browser
from report.large import view
from report.looking import CUT, PALE, SQUEEZED

from interp.heads.patterns import View
from interp.report.atlas.attention import heads_on_text
from interp.report.atlas.page import atlas_page

pytestmark = [pytest.mark.slow, needs_browser]

A4 = 718  # CSS pixels between margins of one centimetre
MAP = "svg.map[data-model=base]"
CARDS = "return [...document.querySelectorAll('.cards h2')].map((h) => h.textContent)"
# Where the middle of a cell lies in the window.
PLACE = """
const map = document.querySelector(`svg.map[data-model=${arguments[0]}]`);
map.scrollIntoView({ block: "center" });
const box = map.getBoundingClientRect(), size = Number(map.dataset.cell);
const scale = box.width / map.viewBox.baseVal.width;
return [box.left + scale * (44 + (arguments[2] + 0.5) * size),
        box.top + scale * (34 + (arguments[1] + 0.5) * size)];
"""


@pytest.fixture(scope="module")
def atlas(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("atlas") / "atlas.html"
    path.write_text(atlas_page(three()), encoding="utf-8")
    return path


@pytest.fixture(params=[1400, 390])
def wide(browser, request):
    browser.emulate("light", request.param)
    yield browser
    browser.emulate("light", 1200)


def mouse(browser, x: float, y: float) -> None:
    where = {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}
    actions = [where, {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
    browser.call(
        "POST", "/actions", {"actions": [{"type": "pointer", "id": "m", "actions": actions}]}
    )


def hash_of(browser) -> str:
    return browser.run("return location.hash")


def test_opens_without_a_network_or_an_error(wide, atlas) -> None:
    wide.open(atlas)
    assert wide.fetched() == {atlas.as_uri()}
    assert wide.run(CARDS) == []
    for model_, label in (("base", "L1H1"), ("wide", "L0H0")):
        wide.run("openHead(arguments[0], arguments[1])", model_, label)
    wide.run("document.querySelector('#search').value = 'zebra'; find()")
    assert wide.log("browser") == []
    assert wide.run("return document.documentElement.scrollWidth") <= wide.run("return innerWidth")


def test_an_open_card_leaves_the_margin_of_the_page(wide, atlas) -> None:
    wide.open(atlas)
    left = "return document.querySelector('h1').getBoundingClientRect().left"
    before = wide.run(left)
    wide.run("openHead('base', 'L1H1')")
    assert wide.run(left) == before >= 12


HEADS = [("base", 1, 1), ("base", 0, 1), ("wide", 11, 29), ("wide", 7, 4), ("wide", 0, 0)]


def test_mouse_and_finger_reach_the_head_under_them(wide, atlas) -> None:
    for touch in (True, False):
        wide.touch(on=touch)
        wide.open(atlas)
        for name, layer, head in HEADS:
            wide.run("go('')")
            where = wide.run(PLACE, name, layer, head)
            wide.tap(*where) if touch else mouse(wide, *where)
            assert wide.run(CARDS) == [f"L{layer}H{head} hub/{name}"], touch
            output = f"return document.querySelector('svg.map[data-model={name}]').parentElement"
            told = wide.run(f"{output}.querySelector('output').textContent")
            assert told.startswith(f"L{layer}H{head}: ")
    wide.touch(on=False)


def test_the_keyboard_moves_opens_and_closes(wide, atlas) -> None:
    wide.open(atlas)
    wide.type(MAP, RIGHT + DOWN + ENTER)
    assert wide.run(CARDS) == ["L1H1 hub/base"]
    assert hash_of(wide) == "#base/L1H1"
    assert wide.run("return document.activeElement.tagName") == "H2"
    wide.type(".cards button", ESCAPE)
    assert wide.run(CARDS) == []
    assert wide.run("return document.activeElement.dataset.model") == "base"


def test_a_card_tells_all_that_is_known(browser, atlas) -> None:
    browser.open(atlas.with_suffix(".html"))
    browser.run("openHead('base', 'L1H1')")
    text = browser.run("return document.querySelector('.cards').innerText")
    for part in (
        "induction 0.900, above its null",
        "copy_loss",
        "+0.310 [+0.220, +0.400] nats",
        "0.900 [0.880, 0.920]",
        "null 0.050; p 1e-6; 1 of 4",
        "Raises:  sat ·  zebra",
        "Lowers:",
        "in the smallest verified set",
        "L0H0 0.800, overlap",
        "⏎",
    ):
        assert part in text, part
    assert browser.run("return document.querySelectorAll('.cards svg.dist .nullband').length") == 2
    browser.click(".cards a[href='#circuit-base']")
    assert hash_of(browser) == "#circuit-base"


def test_links_lead_to_cards_and_back(browser, atlas) -> None:
    browser.call("POST", "/url", {"url": f"{atlas.as_uri()}#wide/L11H29"})
    assert browser.run(CARDS) == ["L11H29 hub/wide"]
    browser.click(".said a.head[href='#base/L1H1']")
    assert browser.run(CARDS) == ["L1H1 hub/base"]
    browser.call("POST", "/back", {})
    assert browser.wait(f"const c = (() => {{ {CARDS} }})(); return c[0] === 'L11H29 hub/wide'")
    browser.call("POST", "/forward", {})
    assert browser.wait(f"const c = (() => {{ {CARDS} }})(); return c[0] === 'L1H1 hub/base'")
    browser.call("POST", "/url", {"url": f"{atlas.as_uri()}#nobody/L99H1"})
    assert browser.run(CARDS) == []
    asks = "The address asks for nobody/L99H1, which this page does not have."
    assert browser.text("header .warning") == asks


def test_one_click_on_a_map_shows_its_head_on_a_text(browser, tmp_path) -> None:
    patterns = np.random.default_rng(0).dirichlet(np.ones(4), (12, 12, 4))
    shown = View.of_patterns(patterns, ["<i>", " the", " cat", " שלום"])
    path = tmp_path / "atlas.html"
    views = {"a": {"file": "view.html", **heads_on_text(shown)}}
    path.write_text(atlas_page(document(model("a", 12, 12)), views=views))
    browser.open(path)
    browser.run("openHead('a', 'L3H5')")
    browser.wait("return document.querySelector('aside .passage span')")
    text = "return [...document.querySelectorAll('aside .passage span')].map(s => s.textContent)"
    assert browser.run(text) == ["<i>", " the", " cat", " שלום"]
    browser.run(
        "document.querySelectorAll('aside .passage span')[2].dispatchEvent("
        "new MouseEvent('mouseover', {bubbles: true}))"
    )
    row = patterns[3, 5, 2]
    best = ["<i>", "the", "cat", "שלום"][int(row.argmax())]
    said = browser.text("aside .reading output")
    assert said.startswith(f"L3H5. “cat” looks at “{best}” {row.max():.2f}")
    assert [entry["message"] for entry in browser.log("browser")] == []


def test_a_card_leads_to_the_attention_of_its_head(browser, tmp_path) -> None:
    path = tmp_path / "atlas.html"
    path.write_text(atlas_page(document(model("a", 12, 12)), views={"a": {"file": "view.html"}}))
    view(tmp_path / "view.html", 8)
    browser.open(path)
    browser.run("openHead('a', 'L11H11')")
    browser.click(".bar-row a")
    assert browser.wait(
        "return document.querySelector('.panel h3')?.textContent.includes('L11H11')"
    )


def test_search_by_head_role_and_token(wide, atlas) -> None:
    wide.open(atlas)
    wide.run("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true}))")
    assert wide.run("return document.activeElement.id") == "search"
    found = "return [...document.querySelectorAll('.hits a')].map((a) => a.textContent)"
    for asked, first, n in (
        ("11.29", "L11H29 hub/wide · induction", 1),
        ("L1 H1", "L1H1 hub/base · induction", 3),
        ("previous", "L0H0 hub/base · previous-token", 3),
        ("zebra", "L1H1 hub/base · raises  zebra", 3),
        ("nothing such", "", 0),
    ):
        wide.run("document.querySelector('#search').value = ''")
        wide.type("#search", asked)
        hits = wide.run(found)
        assert len(hits) == n
        assert hits[:1] == [first] * bool(n)
    wide.run("document.querySelector('#search').value = ''")
    wide.type("#search", "11.29" + ENTER)
    assert wide.run(CARDS) == ["L11H29 hub/wide"]


def test_two_heads_stay_side_by_side(browser, atlas) -> None:
    browser.emulate("light", 1400)
    browser.open(atlas)
    browser.run("openHead('base', 'L1H1')")
    browser.click(".cards button[aria-pressed]")
    browser.run("openHead('wide', 'L0H0')")
    assert browser.run(CARDS) == ["L1H1 hub/base", "L0H0 hub/wide"]
    assert hash_of(browser) == "#base/L1H1,wide/L0H0"
    browser.click(".cards article:last-of-type button[aria-label='next head']")
    assert browser.run(CARDS) == ["L1H1 hub/base", "L0H1 hub/wide"]
    browser.type(".cards article:last-of-type button", ESCAPE)
    assert browser.run(CARDS) == ["L1H1 hub/base"]


def test_what_changed_is_one_click_from_both_heads(browser, atlas) -> None:
    browser.emulate("light", 1400)
    browser.open(atlas)
    browser.click("nav a[href='#change']")
    rows = "return [...document.querySelectorAll('#change tbody tr')].map((r) => r.innerText)"
    assert browser.run(rows) == ["L1H1\tinduction\t-0.600 fraction\t[-0.700, -0.500]\t1e-05"]
    classes = "return [...document.querySelectorAll('#change .cells path')].map("
    assert browser.run(f"{classes}(p) => p.getAttribute('class'))") == ["d16", "d0"]
    browser.type("#change svg.map", RIGHT + DOWN + ENTER)
    assert browser.run(CARDS) == ["L1H1 hub/base", "L1H1 hub/tuned"]
    told = browser.text("#change output")
    assert told == "L1H1: induction -0.600 [-0.700, -0.500] fraction, p 0.000010"


def test_the_legend_filters_and_maps_take_the_colours_of_a_metric(browser, atlas) -> None:
    browser.open(atlas)
    browser.click(".legend li[data-role=induction] button")
    dim = "return document.querySelectorAll(`${arguments[0]} .cells .dim`).length"
    assert browser.run(dim, MAP) == 2
    assert browser.run("return document.querySelectorAll('.said li:not([hidden])').length") == 3
    browser.click(".legend li[data-role=induction] button")
    assert browser.run(dim, MAP) == 0
    browser.run(
        "const s = document.querySelector('#colour'); s.value = 'metric:induction';"
        "s.dispatchEvent(new Event('change'))"
    )
    drawn = f"return [...document.querySelectorAll('{MAP} .cells path')].map("
    assert "q29" in browser.run(f"{drawn}(p) => p.getAttribute('class'))")


def test_rows_that_a_view_shows_can_be_saved(browser, atlas) -> None:
    browser.open(atlas)
    kept = """
    const done = arguments[0], make = URL.createObjectURL;
    URL.createObjectURL = (blob) => { blob.text().then(done); return make(blob); };
    document.querySelector('.tools .rows button:last-child').click();
    """
    text = browser.call("POST", "/execute/async", {"script": kept, "args": []})
    lines = text.splitlines()
    assert lines[0] == "model,head,role"
    assert "hub/base,L1H1,induction" in lines
    assert len(lines) == 1 + 4 + 4 + 360


def test_nodes_of_a_circuit_can_be_pinned_and_grouped(browser, atlas) -> None:
    browser.open(atlas)
    node = "#circuit-base .node[data-node={}]"
    click = "document.querySelector(arguments[0]).dispatchEvent(new Event('click'))"
    browser.run(click, node.format("L0H0"))
    assert browser.run("return document.querySelectorAll('#circuit-base .edge.faint').length") == 1
    browser.run(click, node.format("L1H1"))
    browser.click("#circuit-base [role=status] button")
    assert browser.text(node.format("L0H0") + " text") == "2 nodes"
    assert browser.run("return document.querySelectorAll('#circuit-base .off').length") == 2


def test_markup_in_names_and_tokens_is_inert(browser, tmp_path) -> None:
    bad = model("a", name=HOSTILE)
    card = bad["cards"]["L1H1"]
    card["examples"][0]["tokens"] = [HOSTILE] * 5  # type: ignore[typeddict-item]
    card["writes"]["up"] = [(HOSTILE, 1.0)]  # type: ignore[typeddict-item]
    card["evidence"][0]["text"] = HOSTILE  # type: ignore[typeddict-item]
    bad["metrics"][0]["name"] = HOSTILE
    path = tmp_path / "bad.html"
    path.write_text(atlas_page(document(bad, title=HOSTILE)), encoding="utf-8")
    browser.open(path)
    browser.run("openHead('a', 'L1H1'); document.querySelector('#search').value = 'alert'; find()")
    assert browser.run("return document.querySelectorAll('img, script').length") == 2  # our own
    assert HOSTILE in browser.run("return document.querySelector('.cards').textContent")
    assert browser.log("browser") == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400, 2000])
def test_everything_can_be_read(browser, atlas, theme, width) -> None:
    browser.emulate(theme, width)
    browser.open(atlas)
    browser.run("for (const d of document.querySelectorAll('details')) d.open = true")
    browser.run("openHead('base', 'L1H1')")
    # letters on the cells of a map and on nodes: their colours are tested with the palette
    browser.run("for (const t of document.querySelectorAll('.cells text, text.sign')) t.remove()")
    assert browser.run(PALE) == []
    assert browser.run(CUT) == []
    assert browser.run(SQUEEZED) == []


def test_nothing_is_cut_off_on_paper(browser, atlas) -> None:
    browser.emulate("light", A4)
    asked = {"cmd": "Emulation.setEmulatedMedia", "params": {"media": "print"}}
    browser.call("POST", "/goog/cdp/execute", asked)
    try:
        browser.open(atlas)
        assert browser.run("return matchMedia('print').matches")
        browser.run("for (const d of document.querySelectorAll('.part details')) d.open = true")
        assert browser.run(CUT) == []
        assert browser.run("return document.querySelector('.not').getClientRects().length") == 1
    finally:
        asked["params"] = {"media": ""}
        browser.call("POST", "/goog/cdp/execute", asked)


def test_three_models_make_a_short_page(browser, atlas) -> None:
    browser.emulate("light", 1400)
    browser.open(atlas)
    assert browser.run("return document.documentElement.scrollHeight") < 5000
    assert browser.run("return document.querySelector('.said').getBoundingClientRect().top") < 900


def test_a_browser_without_scripts_shows_maps_and_findings(scriptless, atlas) -> None:
    scriptless.open(atlas)
    assert len(scriptless.screenshot()) > 5000
    assert scriptless.run("return document.querySelectorAll('svg.map[tabindex]').length") == 0
    assert scriptless.run("return document.querySelectorAll('.map .cells path').length") >= 9


@cache
def axe() -> str | None:
    """The script of axe-core, where npm has installed it."""
    if shutil.which("npm") is None:
        return None
    asked = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, check=False)
    folders = [os.environ.get("NODE_PATH", ""), asked.stdout.strip()]
    paths = [Path(f) / "axe-core" / "axe.min.js" for f in folders if f]
    return next((p.read_text(encoding="utf-8") for p in paths if p.is_file()), None)


@pytest.mark.parametrize("opened", [False, True])
def test_a_screen_reader_finds_no_serious_fault(browser, atlas, opened) -> None:
    script = axe()
    if script is None:
        pytest.skip("needs axe-core (npm install --global axe-core, or its folder in NODE_PATH)")
    browser.emulate("light", 1400)
    browser.open(atlas)
    if opened:
        browser.run("openHead('base', 'L1H1')")
    run = f"{script}; const done = arguments[0]; axe.run().then((r) => done(r.violations.map("
    run += "(v) => `${v.impact} ${v.id}: ${v.nodes.length} ${v.nodes[0].html.slice(0, 160)}`)))"
    found = browser.call("POST", "/execute/async", {"script": run, "args": []})
    assert [x for x in found if x.startswith(("serious", "critical"))] == []
