"""The live view in notebooks: its answers, its still picture, and both in a browser."""

from __future__ import annotations

import base64
import importlib.util
import json
import re

import pytest
from report.browser import needs_browser

from interp.report import Explorer
from interp.report.explore import notebook as of_notebook

TEXT = "The cat sat on the mat. The cat sat on the"


@pytest.fixture(scope="module")
def shown():
    return Explorer("bundled:induction", TEXT)


@pytest.fixture
def widget(shown, monkeypatch):
    pytest.importorskip("anywidget")
    made = shown.widget("the-still")
    sent = []
    monkeypatch.setattr(type(made), "send", lambda self, content: sent.append(content))
    made.sent = sent
    return made


def ask(widget, name, given):
    widget._answered(widget, {"id": "1", "name": name, "given": given}, [])
    return widget.sent.pop()


def test_the_kernel_answers_the_calls_of_the_server(shown, widget):
    number = shown.first["prompt"]
    assert ask(widget, "pattern", {"prompt": number, "head": "L1H3"})["found"]["name"] == "L1H3"
    found = ask(widget, "ablate", {"prompt": number, "heads": ["L1H3"]})["found"]
    assert found["intervention"] == "zero(decoder L1H3)"
    assert ask(widget, "pattern", {"prompt": number, "head": "L9H9"})["kind"] == "OptionError"
    assert "known: prompt" in ask(widget, "remove", {})["error"]
    assert "must be a JSON object" in ask(widget, "prompt", None)["error"]
    widget._answered(widget, "no dictionary", [])
    assert widget.sent == []


def test_the_still_picture_has_every_head_and_the_next_tokens(shown):
    html = str(shown.still())
    [picture] = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    svg = base64.b64decode(picture).decode()
    assert svg.startswith("<svg xmlns=")
    assert all(f">H{h}</text>" in svg for h in range(8))
    assert "<script" not in html
    assert html.count("<tr>") == 6


def test_the_still_picture_of_a_long_prompt_and_of_hostile_tokens():
    made = Explorer("bundled:induction", "</style><script>alert(1)</script> " * 60)
    assert made.first["block"] > 1
    assert "<script" not in str(made.still())
    assert repr(made).startswith("Explorer(bundled:induction: ")


def test_without_anywidget_the_still_picture_is_shown(shown, monkeypatch):
    displayed = []
    monkeypatch.setattr("IPython.display.display", displayed.append)
    monkeypatch.setattr(of_notebook, "find_spec", lambda name: None)
    shown._ipython_display_()
    [still] = displayed
    assert "data:image/svg+xml" in still.data


PAGE = """<!doctype html><meta charset="utf-8"><div id="the-still">still</div><div id="cell"></div>
<script>
const answers = %s, data = %s, style = %s, heard = [];
const model = {
  get: (name) => ({ data, style })[name],
  on: (name, heed) => heard.push(heed), off: () => {},
  send: (asked) => {
    const found = answers[asked.name];
    (window.asked ??= []).push(asked);
    const answer = { id: asked.id, ...(found ? { found } : { error: "none" }) };
    setTimeout(() => heard.forEach((heed) => heed(answer)), 5);
  },
};
const el = document.getElementById("cell");
import("data:text/javascript;base64,%s").then((one) => one.default.render({ model, el }));
</script>"""


@pytest.mark.slow
@needs_browser
def test_the_widget_draws_and_asks_in_a_shadow_root(shown, widget, browser, tmp_path):
    number = shown.first["prompt"]
    answers = {
        "pattern": ask(widget, "pattern", {"prompt": number, "head": "L1H3"})["found"],
        "ablate": ask(widget, "ablate", {"prompt": number, "heads": ["L1H3"]})["found"],
        "rules": ask(widget, "rules", {"prompt": number})["found"],
        "write": ask(widget, "write", {"prompt": number, "heads": ["L1H3"]})["found"],
    }
    parts = [json.dumps(x).replace("<", "\\u003c") for x in (answers, widget.data, widget.style)]
    page = tmp_path / "cell.html"
    page.write_text(PAGE % (*parts, base64.b64encode(widget._esm.encode()).decode()))
    browser.emulate("light", 1000)
    browser.open(page)
    inside = "document.getElementById('cell').shadowRoot"
    browser.wait(f"return {inside} && {inside}.querySelectorAll('rect.pick').length === 16")
    assert (
        browser.run("return getComputedStyle(document.getElementById('the-still')).display")
        == "none"
    )
    assert browser.run(f"return {inside}.querySelector('textarea').value") == TEXT
    browser.run(
        f"{inside}.querySelector('rect.pick[data-at=\"0,11\"]')"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    browser.wait(f"return {inside}.querySelector('.panel canvas')")
    browser.run(f"{inside}.querySelector('.panel .ablate').click()")
    browser.wait(f"return {inside}.querySelector('.named').textContent.startsWith('zero(')")
    browser.wait("return window.asked.length === 5")
    given = [one["given"] for one in browser.run("return window.asked")]
    opened, ablated, again, written = (one for one in given if {"head", "heads"} & {*one})
    assert ablated["heads"] == written["heads"] == ["L1H3"]
    assert opened["head"] == again["head"] == "L1H3"
    assert again["after"] == answers["ablate"]["after"]  # the open head, as it attends now
    style = f"getComputedStyle({inside}.querySelector('.panel'))"
    colour = browser.run(f"return {style}.borderTopColor")
    assert colour != "rgba(0, 0, 0, 0)"
    assert browser.log("browser") == []


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("nbconvert"), reason="needs nbconvert")
def test_the_picture_survives_nbconvert():
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter

    code = f"from interp.report import Explorer\nExplorer('bundled:induction', {TEXT!r})"
    cells = [nbformat.v4.new_code_cell(code)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = notebook.cells[0].outputs
    assert any("application/vnd.jupyter.widget-view+json" in one["data"] for one in outputs)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert "data:image/svg+xml;base64," in page
