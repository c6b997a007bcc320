"""The page in a real browser, through chromedriver; skipped where Debian's chromium is absent."""

import base64
import json
import math
import shutil
import subprocess
import urllib.request

import pytest
from table.examples import small

import interp.report
from interp.report import write_report
from interp.table import HeadTable

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("chromium") and shutil.which("chromedriver")),
        reason="needs chromium and chromedriver (apt-get install chromium chromium-driver)",
    ),
]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key the WebDriver standard names
DOWN, RIGHT = "\ue015", "\ue014"


class Browser:
    def __init__(self, address):
        self.address = address
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu"]}
        asked = {"goog:chromeOptions": options, "goog:loggingPrefs": {"performance": "ALL"}}
        started = self.call("POST", "", {"capabilities": {"alwaysMatch": asked}})
        self.address += f"/{started['sessionId']}"

    def call(self, method, path, content=None):
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.address + path, body, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def find(self, selector):
        asked = {"using": "css selector", "value": selector}
        return f"/element/{self.call('POST', '/element', asked)[ELEMENT]}"

    def text(self, selector):
        return self.call("GET", f"{self.find(selector)}/text")

    def requests(self):
        log = self.call("POST", "/se/log", {"type": "performance"})
        events = [json.loads(entry["message"])["message"] for entry in log]
        sent = [e for e in events if e["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]


@pytest.fixture(scope="module")
def browser():
    command = ["chromedriver", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        try:
            line = next(line for line in driver.stdout if "successfully on port" in line)
            port = line.rstrip(".\n").rpartition(" ")[2]
            opened = Browser(f"http://127.0.0.1:{port}/session")
            yield opened
            opened.call("DELETE", "")
        finally:
            driver.terminate()


@pytest.mark.parametrize("cells", [10**6, 1])
def test_opens_offline_and_answers_to_the_keyboard(browser, tmp_path, monkeypatch, cells):
    monkeypatch.setattr(interp.report, "CELLS_AS_ELEMENTS", cells)
    name = "<script>alert(1)</script>"
    table = HeadTable.concat([small(name, null_sem=0.002), small("b")])
    path = tmp_path / "page.html"
    write_report(table, path, ranges={"induction": (0, 1)})
    browser.call("POST", "/url", {"url": path.as_uri()})
    assert browser.text("#m0 h2") == name
    fetched = {url for url in browser.requests() if not url.startswith("data:")}
    assert fetched == {path.as_uri()}

    area = browser.find("svg.map")
    browser.call("POST", f"{area}/value", {"text": RIGHT})
    assert browser.text("output").startswith("L0H1: 0.900 ± 0.01 fraction; null 0.050")
    browser.call("POST", f"{area}/value", {"text": DOWN + DOWN + DOWN})
    assert browser.text("output").startswith("L1H1: 0.200 ± 0.01 fraction; null 0.050")
    move = {"type": "pointerMove", "duration": 0, "origin": {ELEMENT: area.rpartition("/")[2]}}
    # From the middle of the map (30 + 2 x 16 + 2 wide, 20 + 2 x 16 + 2 high) to L1H0.
    actions = [{**move, "x": 38 - 32, "y": 44 - 27}]
    mouse = {"type": "pointer", "id": "mouse", "actions": actions}
    browser.call("POST", "/actions", {"actions": [mouse]})
    assert browser.text("output").startswith("L1H0: 0.500 ± 0.01 fraction")


def script(browser, text):
    return browser.call("POST", "/execute/sync", {"script": text, "args": []})


@pytest.mark.parametrize("cells", [10**6, 1])
def test_a_click_or_enter_opens_the_card_of_a_head(browser, tmp_path, monkeypatch, cells):
    monkeypatch.setattr(interp.report, "CELLS_AS_ELEMENTS", cells)
    name = "<script>alert(1)</script>"
    table = HeadTable.concat([small(), small(metric=name, scores=[[3.0, 2.0], [1.0, 4.0]])])
    write_report(table, tmp_path / "page.html", ranges={"induction": (0, 1)})
    browser.call("POST", "/url", {"url": (tmp_path / "page.html").as_uri()})
    assert script(browser, "return document.querySelector('.card').hidden")
    area = browser.find("svg.map")
    browser.call("POST", f"{area}/value", {"text": RIGHT + "\ue007"})  # to L0H1, Enter
    rows = "return [...document.querySelectorAll('.card tbody tr')].map("
    rows += "r => [...r.cells].map(c => c.textContent))"
    assert browser.text(".card h4") == "L0H1"
    assert script(browser, rows) == [
        ["induction", "0.900 ± 0.01 fraction; null 0.050; n 8", "1 of 4"],
        [name, "2.000 ± 0.01 fraction; null 0.050; n 8", "3 of 4"],
    ]
    assert script(browser, "return document.activeElement.textContent") == "Close"
    browser.call("POST", f"{browser.find('.card button')}/value", {"text": "\ue00c"})  # Escape
    assert script(browser, "return document.querySelector('.card').hidden")
    assert script(browser, "return document.activeElement.className.baseVal") == "map"
    browser.call("POST", f"{area}/click", {})
    assert not script(browser, "return document.querySelector('.card').hidden")


def test_tables_sort_by_a_click_on_a_column(browser, tmp_path):
    table = small(scores=[[0.1, 0.9], [10.5, math.nan]], n=[[8, 8], [8, 0]])
    write_report(table, tmp_path / "page.html")
    browser.call("POST", "/url", {"url": (tmp_path / "page.html").as_uri()})
    script(browser, "document.querySelector('details:last-of-type').open = true")
    column = "details table.sortable th:nth-child(2) button"
    read = "return [...document.querySelectorAll('details table.sortable tbody th')]"
    read += ".map(c => c.textContent)"
    orders = []
    for _ in range(2):
        browser.call("POST", f"{browser.find(column)}/click", {})
        orders.append(script(browser, read))
    # as numbers, not as texts; what has none is last either way
    assert orders == [["L1H0", "L0H1", "L0H0", "L1H1"], ["L0H0", "L0H1", "L1H0", "L1H1"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_fits_the_window_in_both_themes(browser, tmp_path, theme, width):
    wide = small("long/" + "x" * 200, scores=[[0.1] * 64] * 3, provenance={"hash": "f" * 64})
    write_report(wide, tmp_path / "page.html")
    browser.call("POST", "/goog/cdp/execute", emulate(theme, width))
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    asked = {"cmd": "Emulation.setDeviceMetricsOverride", "params": size}
    browser.call("POST", "/goog/cdp/execute", asked)
    browser.call("POST", "/url", {"url": (tmp_path / "page.html").as_uri()})
    script = "const b = getComputedStyle(document.body);"
    script += "return [document.documentElement.scrollWidth, b.backgroundColor, b.color]"
    found = browser.call("POST", "/execute/sync", {"script": script, "args": []})
    colours = [[int(n) for n in text[4:-1].split(",")] for text in found[1:]]
    assert found[0] <= width
    assert (sum(colours[0]) > sum(colours[1])) == (theme == "light")
    assert len(base64.b64decode(browser.call("GET", "/screenshot"))) > 5000


def emulate(theme, width):
    media = [{"name": "prefers-color-scheme", "value": theme}]
    return {"cmd": "Emulation.setEmulatedMedia", "params": {"features": media}}
