"""The live view in a real browser, against a server on this machine; skipped without chromium."""

from __future__ import annotations

import time

import pytest
from report.browser import RIGHT, needs_browser
from report.exploring import corner, head, named, prompt, serving, settled
from report.looking import CROWDED, CUT, PALE, SQUEEZED
from report.test_atlas_browser import axe

import interp
from interp.report.explore.session import Session

pytestmark = [pytest.mark.slow, needs_browser]


EVIL = "</script><img src=x onerror=alert(1)>"


MINUS = "\u2212"


TEXT = "The cat sat on the mat. The cat sat on the"


@pytest.fixture(scope="module")
def stored_scores(session, tmp_path_factory):
    """Scores of the model of the session."""
    path = tmp_path_factory.mktemp("results") / "scores.parquet"
    interp.score(session.model, ["induction", "previous_token"], null="none").save(path)
    return path


def test_the_prompt_box_is_on_the_first_screen_and_no_column_is_cut(
    browser, session, stored_scores
):
    browser.emulate("light", 1400, 900)
    for given in ([], [stored_scores]):
        with serving(given, session) as address:
            browser.call("POST", "/url", {"url": address})
            browser.wait("return document.querySelector('#live form')")
            run = "document.querySelector('#live form button').getBoundingClientRect().bottom"
            assert browser.run(f"return {run}") < 500
            prompt(browser, TEXT)
            head(browser, 11)
            browser.wait("return document.querySelector('.panel canvas')")
            corner(browser, 3)
            named(browser, "zero")
            browser.wait("return document.querySelectorAll('.logits thead th').length === 11")
            cut = browser.run(
                "return [...document.querySelectorAll('#live .scroll')]"
                ".filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText)"
            )
            assert cut == []


@pytest.mark.parametrize("name", ["induction", "deceive", "planted"])
def test_it_starts_with_an_example_that_suits_the_model(browser, name) -> None:
    """Of known words, or of ids where there is no tokenizer; with crosses of a finger's size."""
    model = interp.load("planted:induction" if name == "planted" else f"bundled:{name}")
    begins = {"induction": "The cat sat on", "deceive": "with Anna a ", "planted": "0 48 5 2 "}
    browser.emulate("light", 390)
    browser.log("browser")
    with serving([], Session(model)) as address:
        browser.call("POST", "/url", {"url": address})
        browser.wait("return document.querySelector('.status')?.textContent.includes('An example')")
        text = browser.run("return document.querySelector('#live-text').value")
        assert text.startswith(begins[name])
        assert browser.run("return document.querySelectorAll('.thumbs image').length") == 1
        assert browser.run("return document.querySelectorAll('.logits tbody tr').length") == 10
        boxes = "[...document.querySelectorAll(arguments[0])].map(e => e.getBoundingClientRect())"
        sides = f"return {boxes}.map(b => Math.min(b.width, b.height))"
        assert min(browser.run(sides, ".cut .hit")) >= 44
        assert max(browser.run(sides, "rect.pick")) > 2 * 44  # its middle opens the head
        browser.click("rect.pick")
        browser.wait("return document.querySelector('.panel .ablate')")
        corner(browser, 0)
        named(browser, "zero")
        for control in ("#live .chip button", "#live .panel .controls button"):
            assert min(browser.run(sides, control)) >= 44
        assert browser.run(CUT) == []
        assert browser.log("browser") == []


def test_two_tokens_of_the_text_open_their_edge_and_its_rules(live, session):
    """Without an open head, the head that attends most opens on the pair."""
    prompt(live, TEXT)
    spans = "document.querySelectorAll('#live .passage span')"
    n = live.run(f"return {spans}.length")
    live.run(f"{spans}[1].click(); {spans}[{n - 1}].click()")
    live.wait("return document.querySelector('.pair h4')")
    weights = interp.view(session.model, TEXT).stacks[0].weights
    best = max(weights, key=lambda one: weights[one][n - 1, 1])
    assert live.text(".panel h3") == f"decoder {best}"
    assert live.text(".pair h4").startswith(f"query {n - 1} ")
    live.wait("return document.querySelector('.pair .others button')")
    why = "const w = document.querySelector('.pair .why');"
    live.wait(why + "return w && !w.innerText.includes('Looking')")
    assert "fire" in live.text(".pair .why")
    query = live.text(".pair h4")
    live.run("document.querySelector('.pair .others button:nth-of-type(2)').click()")
    other = "const h = document.querySelector('.pair h4');"
    live.wait(f"{other} return h && h.textContent !== {query!r}")
    assert live.text(".pair h4").split(":")[0] == query.split(":")[0]


def test_zoom_from_a_long_prompt_to_single_tokens(live):
    prompt(live, "The cat sat on the mat. The dog ran. " * 100)
    head(live, 11)
    assert settled(live) > 1
    for _ in range(9):
        live.run("document.querySelector('.zoom .controls button').click()")
    assert settled(live) == 1
    assert "Each point is one weight" in live.text(".level")
    live.run(
        "const [q, k, go] = [...document.querySelectorAll('.zoom input'), "
        "[...document.querySelectorAll('.zoom button')].at(-1)];"
        "q.value = 1000; k.value = 990; go.click()"
    )
    assert settled(live) == 1
    live.wait("return document.querySelector('.zoom output').textContent.includes('weight')")
    assert live.text(".zoom output").startswith("query 1000 ")
    before = live.text(".level")
    live.type(".zoom canvas", RIGHT)
    assert live.text(".level") != before
    live.type(".zoom canvas", "-")
    settled(live)


def test_the_text_of_a_prompt_is_never_markup(live):
    prompt(live, EVIL)
    head(live, 0)
    live.wait("return document.querySelector('.panel canvas')")
    assert live.run("return document.querySelectorAll('#live img').length") == 0


def test_an_error_is_shown_where_the_result_would_be(live):
    live.run("document.querySelector('#live-text').value = '  '")
    live.click("#live form button")
    live.wait("return document.querySelector('.status').textContent === 'the text is empty'")
    live.log("browser")  # the browser notes the answer 400


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_on_a_screen_everything_can_be_read(live, theme, width):
    live.emulate(theme, width)
    prompt(live, TEXT)
    head(live, 11)
    live.wait("return document.querySelector('.panel canvas')")
    live.click(".panel .ablate")
    named(live, "zero")
    time.sleep(0.2)
    for complaint in (PALE, CUT, SQUEEZED, CROWDED):
        assert live.run(complaint) == []


def test_a_screen_reader_finds_no_serious_fault(live):
    script = axe()
    if script is None:
        pytest.skip("needs axe-core (npm install --global axe-core, or its folder in NODE_PATH)")
    prompt(live, TEXT)
    head(live, 11)
    live.wait("return document.querySelector('.panel canvas')")
    for h in (2, 11):
        corner(live, h)
    named(live, "zero(decoder L0H2, L1H3)")
    live.click(".chip .flip")
    named(live, "zero(decoder L1H3)")
    live.run("document.querySelector('.history').open = true")
    run = f"{script}; const done = arguments[0]; axe.run().then((r) => done(r.violations.map("
    run += "(v) => `${v.impact} ${v.id}: ${v.nodes.length} ${v.nodes[0].html.slice(0, 160)}`)))"
    found = live.call("POST", "/execute/async", {"script": run, "args": []})
    assert [x for x in found if x.startswith(("serious", "critical"))] == []


def test_the_atlas_of_results_has_the_prompt_and_its_links_open_heads(
    browser, session, stored_scores
):
    browser.emulate("light", 1280)
    browser.log("browser")
    with serving([stored_scores], session) as address:
        browser.call("POST", "/url", {"url": address})
        browser.wait("return document.querySelector('#live form')")
        assert browser.run("return document.querySelectorAll('main > .models').length") == 1
        prompt(browser, TEXT)
        browser.run("location.hash = '#bundled-induction/L1H3'")
        browser.wait("return document.querySelector('#live .panel canvas')")
        assert browser.text("#live .panel h3") == "decoder L1H3"
        # a click on a map opens its card with the head on the prompt
        browser.wait("return document.querySelector('aside .passage span')")
        browser.run(
            "[...document.querySelectorAll('aside .passage span')].at(-1).dispatchEvent("
            "new MouseEvent('mouseover', {bubbles: true}))"
        )
        assert browser.text("aside .reading output").startswith("L1H3. “the” looks at ")
        browser.run("location.hash = '#bundled-induction/L8H8'")
        browser.wait("return !document.querySelector('header .warning').hidden")
        asks = "The address asks for bundled-induction/L8H8, which this page does not have."
        assert browser.text("header .warning") == asks
        for theme, width in (("light", 390), ("dark", 1280)):
            browser.emulate(theme, width)
            time.sleep(0.3)  # the page is drawn again for its width
            assert browser.run(CUT) == []
        assert browser.log("browser") == []


def test_results_alone_say_why_no_prompt_runs(browser, stored_scores):
    browser.emulate("light", 1280)
    browser.log("browser")
    with serving([stored_scores], None) as address:
        browser.call("POST", "/url", {"url": address})
        browser.wait("return document.querySelector('#live p')")
        assert "start `interp explore` with the model too" in browser.text("#live")
        assert browser.run("return document.querySelector('#live form')") is None
        assert browser.log("browser") == []


def test_a_pair_says_which_rules_fire_and_what_they_explain(browser, session, tmp_path) -> None:
    def mine(query, key, tokens):
        """Attends to the token after an earlier copy."""
        return (key >= 1) & (key <= query) & (tokens[key - 1] == tokens[query])

    pairs = zip("ABCDEF", "GHIJKL", strict=True)
    texts = ["A cat sat on a mat by the sea. " * 3, "She ran to the dog and the cat. " * 3]
    texts += [f"{a} saw {b} in the {a} house of {b}." for a, b in pairs]
    profile = interp.profile(
        session.model, texts, rules=["previous_token", "stops"], n_queries=8, effects=False
    )
    profile.save(tmp_path / "profile.json")
    described = Session(session.model, rules=[mine])
    with serving([tmp_path], described) as address:
        browser.emulate("light", 1280)
        browser.call("POST", "/url", {"url": address})
        prompt(browser, TEXT)
        own = "return [...document.querySelectorAll('#live .logits h3')].map((h) => h.textContent)"
        assert "Your rule mine: heads that follow it most" in browser.wait(
            f"const f = (() => {{ {own} }})(); return f.length > 1 && f"
        )
        browser.click("#live rect.pick[data-at='0,8']")
        browser.wait("return document.querySelector('#live canvas.heat')")
        matrix = "#live .panel canvas.heat"
        browser.type(matrix, RIGHT)
        told = browser.text("#live .panel output")
        assert "; rules: " in told or "; no rule fires" in told
        browser.type(matrix, "\ue015" * 9 + RIGHT * 8 + "\ue007")
        text = browser.wait(
            "const w = document.querySelector('#live .why');"
            "return w && !w.textContent.includes('Looking') && w.innerText"
        )
        assert "Rules that fire on this pair: to the token just before the current one" in text
        assert "The head's description explains" in text
        assert "Where this description fails most" in text
        assert browser.run("return document.querySelectorAll('#live .why mark.query').length") == 3
        assert browser.run(CUT) == []
        assert browser.log("browser") == []
