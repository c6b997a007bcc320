"""The page of a circuit in a real browser: mouse, keyboard, groups, undo, links, files, speed."""

from __future__ import annotations

import json
import urllib.parse
import xml.etree.ElementTree as ET
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from report.browser import DOWN, ENTER, RIGHT, needs_browser
from report.large import circuit_found
from report.looking import CUT, PALE
from report.test_atlas_browser import axe

import interp
from interp.circuits.explained import explained_nodes
from interp.circuits.find import find_circuit
from interp.circuits.nodes import NodeSet, Share, node_of
from interp.circuits.result import Circuit
from interp.circuits.tasks import make_contrast
from interp.report.circuit_graph import circuit_page

pytestmark = [pytest.mark.slow, needs_browser]

NODES = "return [...document.querySelectorAll('svg.circuit .node')].map((g) => g.dataset.node)"
EDGES = "return document.querySelectorAll('svg.circuit .edge').length"
OPEN = "return document.querySelector('.about h2').textContent"
STATUS = ".circuit [role=status]"
UP = "\ue013"


@pytest.fixture(scope="module")
def small_page(planted_induction, tmp_path_factory):
    task = make_contrast(planted_induction, "induction", n=8, seed=0)
    found = find_circuit(planted_induction, task)
    explained = explained_nodes(planted_induction, found, task)
    path = tmp_path_factory.mktemp("circuit") / "circuit.html"
    path.write_bytes(circuit_page(found, explained=explained, command="interp circuit"))
    return path, found


def large() -> Circuit:
    """300 nodes and 5,000 edges, a tenth of each in the set."""
    found = circuit_found(5_000)
    extra = tuple(f"L{layer}H{head}" for layer in range(12) for head in range(12, 24))[:143]
    names = (*found.nodes, *extra)
    draw = np.random.default_rng(1)
    ends = {node_of(end) for edge in found.edges[:500] for end in edge}
    kept = tuple(name for name in names if name in ends)
    chosen = NodeSet(kept, found.edges[:500], Share(0.9, 0.8, 0.95, 0.9), 0.8, 32)
    return replace(
        found,
        nodes=names,
        score=draw.normal(size=len(names)),
        sem=np.full(len(names), 0.1),
        conditional=np.zeros(0),
        conditional_sem=np.zeros(0),
        conditional_on=(),
        measured=(),
        estimate=np.zeros(0),
        tables=chosen.tables({}),
    )


def opened(browser, path, **state) -> None:
    whole = {
        "k": 0,
        "rough": False,
        "pins": [],
        "hidden": [],
        "groups": [],
        "open": "",
        "other": False,
    } | state
    address = f"{path.as_uri()}#{urllib.parse.quote(json.dumps(whole))}"
    browser.log("performance"), browser.log("browser")
    browser.call("POST", "/url", {"url": "about:blank"})
    browser.call("POST", "/url", {"url": address})


def press(browser, text: str) -> None:
    """Press the button of this text."""
    script = "[...document.querySelectorAll('button')].find((b) => b.textContent === arguments[0])"
    browser.run(f"{script}.click()", text)


def test_a_node_and_an_edge_open(browser, small_page) -> None:
    path, found = small_page
    browser.emulate("light", 1400)
    browser.open(path)
    assert browser.fetched() == {path.as_uri()}
    assert set(browser.run(NODES)) == {*found.chosen.nodes, "logits"}
    assert browser.run(EDGES) == len(found.chosen.edges)
    browser.run(
        "document.querySelector('[data-node=L1H0] .face').dispatchEvent("
        "new MouseEvent('click', {bubbles: true}))"
    )
    assert browser.run(OPEN).startswith("L1H0")
    told = browser.text(".about")
    assert "Attention on the first pair" in told
    assert "Why it attends there" in told
    assert "What it writes" in told
    press(browser, "L0H3 (k)")
    assert browser.run(OPEN) == "L0H3 to L1H0 as its key"
    told = browser.text(".about")
    assert "What travels" in told
    assert "What L0H3 meets at the query" in told
    numbers = browser.run(
        "return [...document.querySelectorAll('.about .effects')][0].textContent"
        ".match(/-?[\\d.]+(?=embed|others|$)/g)"
    )
    assert len(numbers) == 2  # the token of the query, and the others
    assert f"They sum to {numbers[0]}, which L0H3 adds as its key" in told
    assert browser.run("return document.querySelectorAll('svg.circuit .edge.on').length") == 1
    opened(browser, path, open="embed>L1H0.v")
    assert "What L1H0 carries" in browser.text(".about")
    assert "that of embed is 1." in browser.text(".about")
    assert browser.log("browser") == []


def test_everything_is_reached_by_keyboard(browser, small_page) -> None:
    path, _ = small_page
    browser.emulate("light", 1400)
    browser.open(path)
    browser.run("document.querySelector('[data-node=embed]').focus()")
    seen = set()
    for key in (UP, UP, UP, UP, DOWN, DOWN, RIGHT):
        active = browser.run("return document.activeElement.dataset.node")
        seen.add(active)
        browser.call("POST", f"{browser.find(f'[data-node={active}]')}/value", {"text": key})
    assert {"embed", "L0H3", "L1H0", "logits"} <= seen
    browser.run("document.querySelector('[data-node=L0H3]').focus()")
    browser.type("[data-node=L0H3]", ENTER)
    assert browser.run(OPEN).startswith("L0H3")


def test_pins_become_a_named_group_and_undo_goes_back(browser, small_page) -> None:
    path, found = small_page
    browser.emulate("light", 1400)
    opened(browser, path, pins=["L0H3", "L1H0"])
    before = browser.run(EDGES)
    browser.type("[aria-label='name of the group']", "copy <b>")
    press(browser, "Group 2 pinned")
    assert len(browser.run(NODES)) == len(found.chosen.nodes)  # with logits, two are one
    texts = "return [...document.querySelectorAll('.node.group text')].map((t) => t.textContent)"
    assert browser.run(texts)[0] == "copy <b>"
    assert browser.run(EDGES) < before  # those within it are not drawn
    address = browser.run("return location.href")
    browser.run(
        "document.querySelector('.node.group').dispatchEvent("
        "new MouseEvent('click', {bubbles: true}))"
    )
    press(browser, "Hide")
    press(browser, "Undo")
    press(browser, "Undo")
    press(browser, "Undo")
    assert set(browser.run(NODES)) == {*found.chosen.nodes, "logits"}
    browser.call("POST", "/url", {"url": "about:blank"})
    browser.call("POST", "/url", {"url": address})  # a link shows the same
    assert browser.run(texts)[0] == "copy <b>"
    assert browser.log("browser") == []


def test_a_link_to_a_head_that_is_not_there_says_so(browser, small_page) -> None:
    path, _ = small_page
    opened(browser, path, open="L9H9", pins=["L8H0", "L0H3"])
    assert "Not in this circuit: L8H0, L9H9" in browser.text(STATUS)
    assert browser.run("return state.pins") == ["L0H3"]
    browser.call("POST", "/url", {"url": "about:blank"})
    browser.call("POST", "/url", {"url": f"{path.as_uri()}#%7Bno"})
    assert "names no view" in browser.text(STATUS)
    assert browser.log("browser") == []


def saved(browser, name: str) -> str:
    """Return the content of the file that a button would save."""
    browser.run("HTMLAnchorElement.prototype.click = function () { window.given = this.href; }")
    press(browser, name)
    return urllib.parse.unquote(browser.run("return window.given").partition(",")[2])


def test_files_hold_what_is_drawn(browser, small_page, tmp_path) -> None:
    path, found = small_page
    opened(browser, path, pins=["L0H3"])
    svg = ET.fromstring(saved(browser, "SVG"))
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    file = tmp_path / "g.graphml"
    file.write_text(saved(browser, "GraphML"))
    graph = nx.read_graphml(file, force_multigraph=True)
    assert set(graph.nodes) == {*found.chosen.nodes, "logits"}
    assert {(a, stated["input"]) for a, _, stated in graph.edges(data=True)} == {
        *found.chosen.edges
    }
    effect = dict(zip(found.nodes, found.score, strict=True))["L1H0"]
    assert graph.nodes["L1H0"]["effect"] == pytest.approx(effect)
    made = json.loads(saved(browser, "circuit-tracer"))
    ids = {node["node_id"] for node in made["nodes"]}
    assert len(ids) == len(made["nodes"])
    assert {end for link in made["links"] for end in (link["source"], link["target"])} <= ids
    assert made["qParams"]["pinnedIds"][0] in ids
    assert made["metadata"]["prompt_tokens"] == found.made["example"]["clean"]


def test_another_circuit_is_compared(browser, small_page) -> None:
    path, _ = small_page
    browser.open(path)
    other = json.dumps({"task": "t", "model": "m", "nodes": ["L0H3", "L7H7", "mlp1"]})
    browser.run(f"readOther({{ name: 'x.json', text: () => Promise.resolve({other!r}) }})")
    told = browser.wait(
        f"const t = document.querySelector('{STATUS}').textContent;return t.includes('t in m') && t"
    )
    assert "1 of its 2 heads" in told
    assert "not in this file: L7H7" in told
    marks = "return [...document.querySelectorAll('.node.there')].map((g) => g.dataset.node)"
    assert browser.run(marks) == ["L0H3"]
    browser.run("readOther({ name: 'x.json', text: () => Promise.resolve('[1') })")
    browser.wait(f"return document.querySelector('{STATUS}').textContent.includes('is not a c')")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_everything_can_be_read(browser, small_page, theme, width) -> None:
    browser.emulate(theme, width)
    opened(browser, small_page[0], open="L1H0", pins=["L0H3"])
    browser.run("for (const d of document.querySelectorAll('details')) d.open = true")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    browser.run("for (const t of document.querySelectorAll('.node text')) t.remove()")
    assert browser.run(PALE) == []
    assert browser.run(CUT) == []


def test_three_hundred_nodes_and_five_thousand_edges_stay_fluid(browser, tmp_path) -> None:
    found = large()
    path = tmp_path / "large.html"
    path.write_bytes(circuit_page(found))
    assert path.stat().st_size < 1_000_000
    browser.emulate("light", 1400)
    browser.open(path)
    assert browser.run(EDGES) == 40
    assert "the 40 strongest of 500 edges are drawn" in browser.text(STATUS)
    drawn = browser.run("return drawn.edges.map(([l]) => Math.abs(l.effect))")
    kept = set(found.chosen.edges)
    effect = [abs(x) for e, x in zip(found.edges, found.edge_score, strict=True) if e in kept]
    assert sorted(drawn) == pytest.approx(sorted(effect)[-40:], rel=1e-3)
    slide = "document.querySelector('[aria-label=\"number of edges\"]')"
    browser.run(
        f"const s = {slide}; s.value = 500; for (const e of ['input', 'change'])"
        " s.dispatchEvent(new Event(e))"
    )
    assert browser.run(EDGES) == 500
    opened(browser, path, e=77)  # a link shows the same
    assert browser.run(EDGES) == 77
    browser.run("change({ k: names.length, e: links.length })")
    assert browser.run(EDGES) == 5_000
    assert len(browser.run(NODES)) == len(found.nodes) + 1
    slow = "const begin = performance.now(); light('L3H3'); document.body.getBoundingClientRect();"
    # far above what it takes: quadratic work over the edges would take seconds
    assert browser.run(f"{slow} return performance.now() - begin") < 500


def test_a_graph_wider_than_the_window_says_so(browser, small_page) -> None:
    told = {}
    for width in (1400, 390):
        browser.emulate("light", width)
        opened(browser, small_page[0])
        wide = browser.run("return host.scrollWidth > host.clientWidth + 1")
        told[width] = "wider than this window" in browser.text(STATUS)
        assert told[width] == wide
    assert told == {1400: False, 390: True}


def test_edges_of_a_set_that_were_not_measured_are_drawn(
    browser, planted_induction, tmp_path
) -> None:
    """At the level of heads the set has all edges between its nodes, and none has a score."""
    task = make_contrast(planted_induction, "induction", n=8, seed=0)
    found = find_circuit(planted_induction, task, level="head")
    assert found.chosen is not None
    assert found.chosen.edges
    assert not found.edges
    path = tmp_path / "heads.html"
    path.write_bytes(circuit_page(found))
    browser.emulate("light", 1400)
    browser.open(path)
    assert browser.run(EDGES) == len(found.chosen.edges)
    opened(browser, path, open=">".join(found.chosen.edges[0]))
    assert "not measured" in browser.text(".about")
    assert browser.log("browser") == []


def test_nodes_are_listed_in_the_order_of_the_printed_number(browser, tmp_path) -> None:
    """Of a backup it is the effect with the other head out."""
    model = interp.load("planted:backup")
    path = tmp_path / "backup.html"
    path.write_bytes(circuit_page(find_circuit(model, make_contrast(model, "induction", n=8))))
    browser.emulate("light", 1400)
    browser.open(path)
    read = "return [...document.querySelectorAll('.about .number')].map((x) => x.textContent)"
    numbers = browser.run(read)
    sizes = [abs(float(text.split()[0])) for text in numbers]
    assert sizes == sorted(sizes, reverse=True)
    assert sum("out)" in text for text in numbers) == 2


def test_without_scripts_the_picture_and_the_numbers_stay(scriptless, small_page) -> None:
    scriptless.open(small_page[0])
    # nothing of the page's script ran, and the static picture stands
    assert scriptless.run("return document.querySelectorAll('.graph svg').length") == 1
    assert scriptless.run("return document.querySelectorAll('svg.circuit').length") == 0


def test_a_screen_reader_finds_no_serious_fault(browser, small_page) -> None:
    script = axe()
    if script is None:
        pytest.skip("needs axe-core (npm install --global axe-core, or its folder in NODE_PATH)")
    browser.emulate("light", 1400)
    opened(browser, small_page[0], open="L1H0", pins=["L0H3", "embed"])
    run = f"{script}; const done = arguments[0]; axe.run().then((r) => done(r.violations.map("
    run += "(v) => `${v.impact} ${v.id}: ${v.nodes.length} ${v.nodes[0].html.slice(0, 160)}`)))"
    found = browser.call("POST", "/execute/async", {"script": run, "args": []})
    assert [x for x in found if x.startswith(("serious", "critical"))] == []
