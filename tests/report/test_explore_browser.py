"""The live view in a real browser, against a server on this machine; skipped without chromium."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest
from report.asking import TOKEN
from report.browser import RIGHT, needs_browser
from report.looking import CROWDED, CUT, PALE, SQUEEZED
from report.test_atlas_browser import axe

import interp
from interp.report.explore.app import application
from interp.report.explore.page import explore_page
from interp.report.explore.server import listening
from interp.report.explore.session import Session

pytestmark = [pytest.mark.slow, needs_browser]
EVIL = "</script><img src=x onerror=alert(1)>"
MINUS = "\u2212"
TEXT = "The cat sat on the mat. The cat sat on the"


@contextmanager
def serving(results, session):
    """The address of a running server of some results, a model, or both."""
    import uvicorn

    page, atlas = explore_page(results, session)
    opened = listening(0)
    port = opened.getsockname()[1]
    app = application(page, session, TOKEN, port, atlas)
    config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{port}/?token={TOKEN}"
    server.should_exit = True
    thread.join(20)
    opened.close()


@pytest.fixture(scope="module")
def session():
    return Session(interp.load("bundled:induction"))


@pytest.fixture(scope="module")
def address(session):
    with serving([], session) as found:
        yield found


@pytest.fixture(scope="module")
def stored_scores(session, tmp_path_factory):
    """Scores of the model of the session."""
    path = tmp_path_factory.mktemp("results") / "scores.parquet"
    interp.score(session.model, ["induction", "previous_token"], null="none").save(path)
    return path


@pytest.fixture
def live(browser, address):
    """The page before a prompt; at the end nothing was complained about or fetched elsewhere."""
    browser.emulate("light", 1280)
    browser.log("performance"), browser.log("browser")
    browser.call("POST", "/url", {"url": "about:blank"})
    browser.call("POST", "/url", {"url": address})
    yield browser
    assert browser.log("browser") == []
    base = address.partition("?")[0]
    assert all(url.startswith((base, "about:")) for url in browser.fetched())


def prompt(browser, text):
    browser.run("document.querySelector('#live-text').value = arguments[0]", text)
    browser.click("#live form button")
    browser.wait("return document.querySelector('.status').textContent.includes('tokens in')", 60)


def head(browser, h):
    browser.run("document.querySelector(`rect.pick[data-at='0,${arguments[0]}']`)"
                ".dispatchEvent(new MouseEvent('click', {bubbles: true}))", h)  # fmt: skip


def settled(browser):
    level = "document.querySelector('.panel .level')"
    browser.wait(f"return {level} && {level}.dataset.missing === '0'", 60)
    return browser.run("return Number(document.querySelector('.panel .level').dataset.block)")


def named(browser, begin):
    browser.wait(f"return document.querySelector('.named').textContent.startsWith('{begin}')")


def test_type_a_prompt_open_a_head_and_ablate_it(live):
    live.type("#live-text", TEXT)
    live.click("#live form button")
    live.wait("return document.querySelector('.logits td')")
    assert len(live.run("return [...document.querySelectorAll('rect.pick')].map(r => 1)")) == 16
    assert live.text(".named") == "No head is ablated."
    head(live, 11)
    live.wait("return document.querySelector('.panel canvas')")
    assert live.text(".panel h3") == "decoder L1H3"
    heat = "return document.querySelector('.stacks image.heat').getAttribute('href')"
    whole = live.run(heat)
    live.click(".panel canvas")
    live.wait("return document.querySelector('.pair h4')")
    live.click(".panel .ablate")
    named(live, "zero(decoder L1H3)")
    rows = live.run(
        "return [...document.querySelectorAll('.logits tbody tr')]"
        ".map(r => [...r.cells].map(c => c.textContent))"
    )
    # before, after and what changed, side by side
    assert len(rows[0]) == 8
    for _, before, rank, after, then, points, moves, _ in rows:
        change = float(points.replace(MINUS, "-"))
        assert change == pytest.approx(float(after) - float(before), abs=0.11)
        climbed = int(rank) - int(then)
        assert moves == (f"{'▲' if climbed > 0 else '▼'} {abs(climbed)}" if climbed else "0")
    assert any(row[7] not in ("+0.00", f"{MINUS}0.00") for row in rows)
    assert live.text(".logits .sentence").startswith("The probability of “")
    assert live.text(".panel .ablate") == "Bring L1H3 back"
    live.click(".chips .remove")
    live.wait("return document.querySelector('.named').textContent === 'No head is ablated.'")
    assert live.run(heat) == whole  # no later layer reads L1H3
    head(live, 3)  # L0H3, which the heads of layer 1 read
    live.wait("return document.querySelector('.panel .ablate')?.textContent === 'Ablate L0H3'")
    live.click(".panel .ablate")
    live.wait("return document.querySelector('.note.ablated').textContent !== ''")
    assert live.run(heat) != whole
    assert live.text(".panel h3") == "decoder L0H3"
    live.wait("return document.querySelector('.panel .ablate')?.textContent === 'Bring L0H3 back'")
    live.click(".chips .remove")
    live.wait("return document.querySelector('.note.ablated').textContent === ''")
    assert live.run(heat) == whole


def corner(browser, h):
    browser.run("document.querySelector(`rect.pick[data-at='0,${arguments[0]}'] + .cut`)"
                ".dispatchEvent(new MouseEvent('click', {bubbles: true}))", h)  # fmt: skip


def test_one_click_ablates_a_head_and_brings_it_back(live):
    prompt(live, TEXT)
    live.click("rect.pick[data-at='0,2'] + .cut")
    named(live, "zero(decoder L0H2)")
    assert live.run("return document.querySelector('.panel canvas') === null")  # opens nothing
    corner(live, 2)
    live.wait("return document.querySelector('.named').textContent === 'No head is ablated.'")
    live.run("document.querySelector(`rect.pick[data-at='0,0']`).focus()")
    live.run("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'Delete'}))")
    named(live, "zero(decoder L0H0)")


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


def test_another_intervention_replaces_what_the_ablated_heads_write(live):
    prompt(live, TEXT)
    for h in (2, 11):
        corner(live, h)
    named(live, "zero(decoder L0H2, L1H3)")
    live.run("const s = document.querySelector('#live fieldset select');"
             "s.value = 'uniform-attention'; s.dispatchEvent(new Event('change'))")  # fmt: skip
    named(live, "uniform-attention(")
    assert live.run("return document.querySelectorAll('rect.pick.out').length") == 2
    live.run("const s = document.querySelector('#live fieldset select');"
             "s.value = 'mean-dataset'; s.dispatchEvent(new Event('change'))")  # fmt: skip
    live.wait("return document.querySelector('.logits').textContent.includes('needs reference')")


STEPS = "return [...document.querySelectorAll('.steps button')].map(b => b.textContent)"


def chips(browser):
    return browser.run(
        "return [...document.querySelectorAll('.chip')].map("
        "c => [c.querySelector('.flip').textContent, c.classList.contains('on')])"
    )


def test_an_edit_is_switched_off_and_on_and_removed(live):
    prompt(live, TEXT)
    for h in (2, 11):
        corner(live, h)
    named(live, "zero(decoder L0H2, L1H3)")
    live.click(".chip .flip")
    named(live, "zero(decoder L1H3)")
    assert chips(live) == [["L0H2", False], ["L1H3", True]]
    assert live.run("return document.querySelector('.chip .flip').ariaPressed") == "false"
    live.run("const s = document.querySelector('.chip.on select');"
             "s.value = 'mean-batch'; s.dispatchEvent(new Event('change'))")  # fmt: skip
    named(live, "mean-batch(decoder L1H3)")
    live.click(".chip .flip")
    named(live, "zero(decoder L0H2); mean-batch(decoder L1H3)")
    live.click(".chip .remove")
    named(live, "mean-batch(decoder L1H3)")
    assert chips(live) == [["L1H3", True]]


def test_steps_are_undone_and_done_again_with_their_prompts(live):
    prompt(live, TEXT)
    corner(live, 2)
    named(live, "zero(decoder L0H2)")
    live.run("document.querySelector('#live-text').value = 'the dog and the dog'")
    live.click("#live form button")
    live.wait("return document.querySelector('.steps').children.length === 3")
    named(live, "zero(decoder L0H2)")  # an edit stays for the next prompt
    corner(live, 11)
    named(live, "zero(decoder L0H2, L1H3)")
    assert len(live.run(STEPS)) == 4
    done = "return document.querySelector('.status').textContent.includes('tokens in')"
    undo = "[...document.querySelectorAll('#live button')].find(b => b.textContent === 'Undo')"
    redo = undo.replace("Undo", "Redo")
    live.run(f"{undo}.click()")
    named(live, "zero(decoder L0H2):")
    live.run(f"{undo}.click()")
    live.wait(f"return document.querySelector('#live-text').value === '{TEXT}'")
    live.wait(done)
    time.sleep(0.3)
    named(live, "zero(decoder L0H2):")
    live.run("document.querySelector('.chip .flip').focus(); document.activeElement.dispatchEvent("
             "new KeyboardEvent('keydown', {key: 'z', ctrlKey: true, bubbles: true}))")  # fmt: skip
    live.wait("return document.querySelector('.named').textContent === 'No head is ablated.'")
    assert live.run(f"return {undo}.disabled")
    for step in range(2, 5):
        live.run(f"{redo}.click()")
        live.wait(f"return document.querySelector('.history summary').textContent.includes({step})")
        live.wait(done)
        named(live, "zero(decoder L0H2, L1H3)" if step == 4 else "zero(decoder L0H2):")
        time.sleep(0.3)
    assert live.run("return document.querySelector('#live-text').value") == "the dog and the dog"
    live.run(f"{undo}.click()")
    named(live, "zero(decoder L0H2):")
    corner(live, 0)  # another way from here
    named(live, "zero(decoder L0H2, L0H0)")
    assert live.run(STEPS)[3:] == ["zero L0H0"]
    assert live.run(f"return {redo}.disabled")


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
    live.run("const [q, k, go] = [...document.querySelectorAll('.zoom input'), "
             "[...document.querySelectorAll('.zoom button')].at(-1)];"
             "q.value = 1000; k.value = 990; go.click()")  # fmt: skip
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
        browser.run("[...document.querySelectorAll('aside .passage span')].at(-1).dispatchEvent("
                    "new MouseEvent('mouseover', {bubbles: true}))")  # fmt: skip
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
