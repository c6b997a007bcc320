"""What heads do on text, in a real browser: cards, the scatter, search, colours, narrow windows."""

from __future__ import annotations

from pathlib import Path

import pytest
from report.browser import ENTER, RIGHT, needs_browser
from report.looking import CUT, PALE, SQUEEZED
from report.profile_sample import profile

from interp.profiles import write_headvis
from interp.report.atlas.build import build_atlas
from interp.report.atlas.page import atlas_page

pytestmark = [pytest.mark.slow, needs_browser]

HOSTILE = "</script><img src=x onerror=alert(1)>"
CARDS = "return [...document.querySelectorAll('.cards h2')].map((h) => h.textContent)"


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("profile") / "atlas.html"
    path.write_text(atlas_page(build_atlas(profile())), encoding="utf-8")
    return path


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_it_opens_quietly_and_everything_can_be_read(browser, page, theme, width) -> None:
    browser.emulate(theme, width)
    browser.open(page)
    assert browser.fetched() == {page.as_uri()}
    browser.run("for (const d of document.querySelectorAll('details')) d.open = true")
    browser.run("openHead('hub-base', 'L0H0')")
    browser.run("for (const d of document.querySelectorAll('.cards details')) d.open = true")
    browser.run("for (const t of document.querySelectorAll('.cells text')) t.remove()")
    assert browser.run(PALE) == []
    assert browser.run(CUT) == []
    assert browser.run(SQUEEZED) == []
    assert browser.log("browser") == []


def test_a_card_begins_with_the_sentence_and_ends_with_what_was_known_before(browser, page) -> None:
    browser.emulate("light", 1400)
    browser.open(page)
    browser.run("openHead('hub-base', 'L0H0')")
    text = browser.run("return document.querySelector('.cards article').innerText")
    parts = [
        "Of its attention off the sink (90 %), 60 % goes to the token just before",
        "unexplained: needs context",
        "0.30 [0.29, 0.31]",
        "to the token just before\t60 % [58, 62]",
        "Strongest",
        "stories.jsonl:7; 0.420 nats from what the rules predict",
        "Typical",
        "Surprising",
        "Writes",
        "Controls and further numbers on this text",
    ]
    places = [text.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)
    assert browser.run("return document.querySelectorAll('.cards mark.query').length") == 4
    browser.run("document.querySelector('.cards details').open = true")
    more = browser.run("return document.querySelector('.cards details').innerText")
    assert "loss_without" in more
    assert "rules on another document" in more


def test_the_scatter_and_the_map_point_at_the_same_head(browser, page) -> None:
    browser.emulate("light", 1400)
    browser.open(page)
    choose = "const s = document.querySelector('.scatter select[aria-label=\"x axis\"]');"
    browser.run(f"{choose} s.value = 'loss_without'; s.dispatchEvent(new Event('change'))")
    browser.type("svg.plot", RIGHT)
    told = browser.text(".scatter output")
    assert told.startswith("L1H0: loss_without 0.000 [-0.010, 0.010]; explained_list 0.500")
    ring = "return document.querySelector('svg.map .cursor').getAttribute('d')"
    assert browser.run(ring) == browser.run("return maps[0].square([1, 0], 0.5)")
    browser.type("svg.plot", ENTER)
    assert browser.run(CARDS) == ["L1H0 hub/base"]
    # and back: a head under the pointer on the map is circled among the points
    browser.run("maps[0].show([0, 2])")
    circled = browser.run("return document.querySelector('svg.plot .cursor').getAttribute('d')")
    assert circled == browser.run("return maps[1].dot(2, 6)")
    dots = "return [...document.querySelectorAll('svg.plot .cells path')].map((p) => p.className)"
    assert len(browser.run(dots)) == 4  # the colours of four roles
    browser.click(".legend li[data-role=position] button")
    assert browser.run("return document.querySelectorAll('svg.plot .cells .dim').length") == 3


def test_the_search_finds_words_of_a_sentence_in_any_order(browser, page) -> None:
    browser.open(page)
    browser.type("#search", "before just")
    found = browser.run("return [...document.querySelectorAll('.hits a')].map((a) => a.hash)")
    assert found == ["#hub-base/L0H0", "#hub-base/L1H0"]


def test_markup_in_texts_is_inert(browser, tmp_path) -> None:
    path = tmp_path / "bad.html"
    bad = profile(token=HOSTILE, model=HOSTILE, corpus=HOSTILE)
    path.write_text(atlas_page(build_atlas(bad)), encoding="utf-8")
    browser.open(path)
    browser.run(
        "openHead(atlas.models[0].id, 'L0H0');"
        "document.querySelector('#search').value = 'alert'; find()"
    )
    assert browser.run("return document.querySelectorAll('img, script').length") == 2  # our own
    assert HOSTILE in browser.run("return document.querySelector('.cards').textContent")
    assert browser.log("browser") == []


def test_a_changed_head_opens_in_both_models(browser, tmp_path) -> None:
    """The sentence on a change leads to the head before and after."""
    import dataclasses

    import numpy as np

    from interp.profiles.behaviours import Behaviours

    first = profile()
    shares = np.full((8, 1), 0.1)
    one = Behaviours(
        ("on:induction",),
        ("to an earlier copy",),
        shares,
        shares * 0 + 0.01,
        np.random.default_rng(0).normal(size=(8, 1, 50)),
        60,
    )
    other = dataclasses.replace(one, values=shares + 0.5 * (np.arange(8) == 5)[:, None])
    made = {**first.provenance, "content_hash": "b" * 64, "model_id": "hub/tuned"}
    pair = (
        dataclasses.replace(first, behaviours=one),
        dataclasses.replace(first, behaviours=other, provenance=made),
    )
    path = tmp_path / "changes.html"
    path.write_text(atlas_page(build_atlas(*pair)), encoding="utf-8")
    browser.emulate("light", 1400)
    browser.open(path)
    said = browser.text(".changed li")
    assert said.startswith("L1H1 More to an earlier copy: 10 % of its attention off the sink, now")
    browser.click(".changed a.head")
    assert browser.run(CARDS) == ["L1H1 hub/base", "L1H1 hub/tuned"]
    assert browser.log("browser") == []


def test_a_headvis_tree_makes_the_same_page_without_intervals(browser, tmp_path) -> None:
    path = tmp_path / "tree.html"
    tree = write_headvis(profile(), tmp_path / "tree")
    path.write_text(atlas_page(build_atlas(tree)), encoding="utf-8")
    browser.emulate("light", 1400)
    browser.open(path)
    browser.run("openHead('hub-base', 'L0H1')")
    text = browser.run("return document.querySelector('.cards article').innerText")
    assert "NaN" not in text
    assert "Interval 5" in text
    assert browser.run("return document.querySelectorAll('.cards mark.query').length") == 4
    browser.type("svg.plot", RIGHT)
    assert "NaN" not in browser.text(".scatter output")
    assert browser.log("browser") == []


def test_facts_of_other_analyses_are_shown_whatever_they_are(browser, tmp_path) -> None:
    import dataclasses

    number = {"value": 0.012, "low": 0.01, "high": 0.02}
    more = {
        "reads": {"keys": [{"token": " ", "share": 0.09, "low": 0.01, "high": 0.1}], "queries": []},
        "effect": {"loss": number, "by_kind": {"repeated": {**number, "n_tokens": 200}}},
        "note": HOSTILE,
        "nothing": None,
    }
    found = profile()
    changed = tuple({**one, **more} for one in found.descriptions)
    path = tmp_path / "facts.html"
    page = atlas_page(build_atlas(dataclasses.replace(found, descriptions=changed)))
    path.write_text(page, encoding="utf-8")
    browser.open(path)
    browser.run("openHead('hub-base', 'L0H0')")
    text = browser.run("return document.querySelector('.cards article').innerText")
    for part in (
        "Reads",
        "␣\t0.090\t[0.010, 0.100]",
        "Loss\t0.012 [0.010, 0.020]",
        "Repeated\t0.012 [0.010, 0.020]",
        HOSTILE,
        "ran 0.700",
    ):
        assert part in text, part
    assert "Nothing" not in text
    assert browser.log("browser") == []
