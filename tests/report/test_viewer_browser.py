"""Pages of the viewer in a real browser, offline; skipped where Debian's chromium is absent."""

from __future__ import annotations

import re

import numpy as np
import pytest
from report.browser import DOWN, ELEMENT, ENTER, ESCAPE, RIGHT, needs_browser
from report.viewing import head, spoken

import interp
from interp.heads.patterns import View, long_view, view

pytestmark = [
    pytest.mark.slow,
    needs_browser,
]


EVIL = "<script>alert(1)</script>"


def test_a_click_or_enter_opens_a_head_and_escape_closes_it(opened, bundled_induction) -> None:
    page = opened(view(bundled_induction, "the cat and the cat"))
    page.wait("return document.querySelector('.panel h3')")  # a page opens with a head
    page.type(".panel h3", ESCAPE)
    assert head(page) == ""
    page.click("rect.pick[data-at='0,9']")
    page.wait("return document.querySelector('.panel h3')?.textContent === 'decoder L1H1'")
    page.type(".panel h3", ESCAPE)
    assert head(page) == ""
    # from the head that was open: right, then Enter
    page.type("rect.pick[data-at='0,0']", RIGHT + DOWN + ENTER)
    page.wait("return document.querySelector('.panel h3')?.textContent === 'decoder L1H1'")
    page.click(".panel .controls button:nth-child(2)")
    page.wait("return document.querySelector('.panel h3')?.textContent === 'decoder L1H2'")


def test_the_matrix_reads_the_weights_of_the_run_and_shows_the_pair(
    opened, bundled_induction
) -> None:
    found = view(bundled_induction, "the cat and the cat", heads=["L1H0"])
    page = opened(found)
    page.wait("return document.querySelector('.panel canvas[tabindex]')")
    # the first arrow lands on the first cell, the next ones move
    page.type(".panel canvas[tabindex]", DOWN + DOWN + DOWN + RIGHT)
    said = page.text(".panel figure:first-child output")
    assert said.endswith(f"weight {spoken(found.pattern('L1H0')[2, 1])}")
    assert said.startswith("query 2 ")
    page.type(".panel canvas[tabindex]", ENTER)
    page.wait("return document.querySelector('.pair .sum')")
    terms = found.stacks[0].terms[interp.Head(1, 0)]
    score, weight = terms.scores()[2, 1], terms.weights()[2, 1]
    told = page.text(".pair .sum")
    numbers = [float(x) for x in re.findall(r"-?[0-9.]+(?:e-?[0-9]+)?", told)]
    assert numbers == pytest.approx([0.25, score, score, weight], rel=5e-3)
    rows = page.run("return [...document.querySelectorAll('.pair tbody')].map(b => b.rows.length)")
    assert rows == [16, 3]  # d_head products, three visible keys
    products = page.run(
        "return [...document.querySelectorAll('.pair tbody')][0].rows.length &&"
        "[...document.querySelectorAll('.pair tbody')[0].rows].map("
        "r => Number(r.cells[6].textContent))"
    )
    assert sum(products) == pytest.approx(score, abs=5e-3)
    assert np.all(np.diff(np.abs(products)) <= 1e-9)  # largest first


def test_lines_follow_the_token_that_is_chosen(opened, bundled_induction) -> None:
    found = view(bundled_induction, "the cat and the cat", heads=["L1H0"])
    page = opened(found)
    page.wait("return document.querySelector('.lines button')")
    last = len(found.stacks[0].queries) - 1
    page.click(f".lines .query button[data-at='{last}']")
    row = found.pattern("L1H0")[last]
    shown = page.run(
        "return [...document.querySelectorAll('.lines .key button')].map(b => b.dataset.weight)"
    )
    assert shown == [f"{w:.2f}" if w >= 0.05 else "" for w in row]
    said = page.text(".panel figure:last-child output")
    assert f": {(row >= 0.05).sum()} line" in said
    assert "; query pinned" in said
    page.click(f".lines .key button[data-at='{int(row.argmax())}']")
    page.wait("return document.querySelector('.pair h4')")
    assert page.text(".pair h4").startswith(f"query {last} ")


def test_sentences_can_be_looked_at_apart(opened) -> None:
    rng = np.random.default_rng(0)
    patterns = rng.dirichlet(np.ones(6), (1, 1, 6))
    page = opened(View.of_patterns(patterns, list("abcxyz"), second=3))
    page.wait("return document.querySelector('select.parts')")
    texts = "return [...document.querySelectorAll('.lines ol')].map(o => o.textContent)"
    assert page.run(texts) == ["abcxyz", "abcxyz"]
    for part, want in (("ab", ["abc", "xyz"]), ("ba", ["xyz", "abc"]), ("bb", ["xyz", "xyz"])):
        page.run(
            "const s = document.querySelector('select.parts'); s.value = arguments[0];"
            "s.dispatchEvent(new Event('change'))",
            part,
        )
        assert page.run(texts) == want
    page.type(".panel canvas[tabindex]", DOWN)
    assert f"weight {patterns[0, 0, 3, 3]:.4f}" in page.text(".panel figure output")


def test_tokens_are_shown_and_never_run(opened) -> None:
    tokens = [EVIL, "<img src=x onerror=alert(2)>", "\n", "b"]
    patterns = np.full((1, 1, 4, 4), 0.25)
    page = opened(View.of_patterns(patterns, tokens, title=EVIL, stack=EVIL))
    page.wait("return document.querySelector('.lines button')")
    assert page.text(".panel h3") == f"{EVIL} L0H0"
    assert page.text("header .soft") == EVIL
    assert page.text("h1").startswith("L0H0 gives 0.25 of the attention of “")
    shown = "return document.querySelector('.lines button').getAttribute(arguments[0])"
    assert page.run(shown, "title") == f"0 {EVIL}"
    assert page.run(shown, "aria-label") == f"query 0 {EVIL[:17]}…"
    page.click(".lines .query button")
    page.click(".lines .key button[data-at='1']")
    page.wait("return document.querySelector('.pair h4')")
    assert "<img src=x" in page.text(".pair h4")
    assert page.run("return document.querySelectorAll('img:not([src^=data])').length") == 0


BLUE = """
    const over = document.querySelector('.over canvas'), { grid } = page.stacks[0].picture;
    const copy = new OffscreenCanvas(over.width, over.height);
    const pen = copy.getContext('2d', { willReadFrequently: true });
    pen.drawImage(over, 0, 0);
    return [...Array(grid[0] * grid[1]).keys()].map((i) => {
      const x = (i % grid[1] + 0.5) * over.width / grid[1];
      const y = (Math.floor(i / grid[1]) + 0.5) * over.height / grid[0];
      return pen.getImageData(x, y, 1, 1).data[2];
    });
"""


# The middle of an element, or a place near its lower right corner.
PLACE = """
const e = document.querySelector(arguments[0]);
e.scrollIntoView({ block: "center" });
const box = e.getBoundingClientRect();
return [arguments[1] ? box.right - 4 : (box.left + box.right) / 2,
        arguments[1] ? box.bottom - 4 : (box.top + box.bottom) / 2];
"""


def test_a_finger_opens_what_lies_under_it(opened, bundled_induction) -> None:
    found = view(bundled_induction, "the cat and the cat")
    last = len(found.stacks[0].queries) - 1
    phone = opened(found, width=390)
    phone.touch(on=True)
    try:
        phone.tap(*phone.run(PLACE, "rect.pick[data-at='0,9']", False))
        phone.wait("return document.querySelector('.panel h3')?.textContent === 'decoder L1H1'")
        phone.tap(*phone.run(PLACE, ".panel canvas[tabindex]", True))
        phone.wait("return document.querySelector('.pair h4')")
        weight = found.pattern("L1H1")[last, last]
        for where in (".pair h4", ".panel figure:first-child output"):
            assert phone.text(where).startswith(f"query {last} ")
            assert phone.text(where).endswith(f"weight {spoken(weight)}")
        patterns = np.random.default_rng(0).dirichlet(np.ones(7), 7)
        picture = View.over_image(patterns[None, None], np.zeros((20, 30, 3), np.uint8), (2, 3))
        opened(picture, width=390)
        phone.wait("return document.querySelector('.over canvas')")
        phone.tap(*phone.run(PLACE, ".over canvas", True))
        said = phone.text(".panel figure:last-child output")
        assert said.startswith("query 6 1,2:")
    finally:
        phone.touch(on=False)


def test_an_image_is_coloured_where_its_patch_looks(opened) -> None:
    grid = np.random.default_rng(0).dirichlet(np.full(7, 0.5), 7)  # a class token and 2 x 3 patches
    white = np.full((20, 30, 3), 255, np.uint8)
    found = View.over_image(grid[None, None], white, (2, 3))
    page = opened(found)
    page.wait("return document.querySelector('.over canvas')")
    page.type(".over canvas", RIGHT)  # from patch 0,0 to patch 0,1, the third token
    said = page.text(".panel figure:last-child output")
    best = grid[2].argmax()
    assert said.startswith(f"query 2 0,1: largest weight {grid[2, best]:.4f} on {best} ")
    assert f"{grid[2, 1:].sum():.4f} on patches" in said
    blue = np.array(page.run(BLUE))
    # orange has no blue: the more of it, by the square root of the weight, the less blue of white
    part = np.sqrt(grid[2, 1:] / grid[2, 1:].max())
    np.testing.assert_allclose(blue, 255 * (1 - 0.8 * part), atol=2)
    page.type(".over canvas", DOWN)
    assert page.text(".panel figure:last-child output").startswith("query 5 1,1:")


def test_tiles_of_a_long_prompt_open_token_by_token(opened, bundled_induction) -> None:
    prompt = [10 + i % 97 for i in range(700)]
    tiles = ["L1H3:600-640,90-130"]
    found = long_view(bundled_induction, prompt, tiles=tiles, heaviest=0, heads=["L0H0"])
    page = opened(found)
    page.click("figure.tile button")
    page.wait("return document.querySelector('.panel h3')?.textContent.includes('600-640')")
    page.type(".panel canvas[tabindex]", DOWN)
    said = page.text(".panel figure:first-child output")
    assert said.startswith("query 600 ")
    tile = found.stacks[0].tiles[0]
    assert float(said.split()[-1]) == pytest.approx(tile.weights[0, 0], abs=2e-5)
    page.type(".panel canvas[tabindex]", ENTER)
    page.wait("return document.querySelector('.pair .note')")
    assert "a tile hold weights only" in page.text(".pair .note")
    page.click("rect.pick[data-at='0,11']")
    page.wait("return document.querySelector('.panel h3')?.textContent === 'decoder L1H3'")
    page.type(".panel canvas[tabindex]", DOWN + DOWN + RIGHT)
    assert "mean share" in page.text(".panel figure:first-child output")
    page.type(".panel canvas[tabindex]", ENTER)
    page.wait("return document.querySelector('.pair code')")
    told = page.text(".pair code")
    assert told == "--set tiles=L1H3:16-32,16-32"
    found.with_tiles([told.partition("=")[2]])  # and that is what it takes
    page.run("showPair(document.querySelector('.pair'), opened.shown, 43, 0)")
    page.wait("return document.querySelector('.pair code')?.textContent.includes(':688-700,0-16')")


def test_the_frame_in_a_notebook_answers_too(browser, bundled_induction, tmp_path) -> None:
    found = view(bundled_induction, "the cat and the cat", heads=["L1H0"])
    cell = f"<!doctype html><h1>A notebook</h1>{found._repr_html_()}"
    (tmp_path / "cell.html").write_text(cell, encoding="utf-8")
    browser.emulate("light", 1200)
    browser.open(tmp_path / "cell.html")
    frame = browser.find("iframe").rpartition("/")[2]
    browser.call("POST", "/frame", {"id": {ELEMENT: frame}})
    browser.wait("return document.querySelector('.lines button')")
    browser.click("rect.pick[data-at='0,2']")
    browser.wait("return document.querySelector('.panel h3')?.textContent === 'decoder L0H2'")
    browser.call("POST", "/frame", {"id": None})
    assert [entry["message"] for entry in browser.log("browser")] == []
    assert browser.fetched() <= {(tmp_path / "cell.html").as_uri(), "about:srcdoc"}


def test_print_shows_the_open_head_without_its_buttons(opened, bundled_induction) -> None:
    page = opened(view(bundled_induction, "the cat and the cat", heads=["L1H0"]), "dark")
    page.wait("return document.querySelector('.lines button')")
    media = {"cmd": "Emulation.setEmulatedMedia", "params": {"media": "print"}}
    page.call("POST", "/goog/cdp/execute", media)
    try:
        read = "const s = q => getComputedStyle(document.querySelector(q));"
        seen = page.run(
            read + "return [s('.controls').display, s('.panel canvas').filter,"
            "s('svg.thumbs image').filter, s('body').backgroundColor]"
        )
    finally:
        page.call("POST", "/goog/cdp/execute", media | {"params": {"media": ""}})
    assert seen == ["none", "none", "none", "rgb(255, 255, 255)"]


def test_without_scripts_the_page_still_shows_every_head(
    scriptless, bundled_induction, tmp_path
) -> None:
    view(bundled_induction, "the cat and the cat").save_html(tmp_path / "page.html")
    page = scriptless
    page.open(tmp_path / "page.html")
    size = page.call("GET", f"{page.find('svg.thumbs image')}/rect")
    assert size["width"] > 300
    text = page.call("GET", f"{page.find('p.prompt')}/text")
    assert text.endswith("the cat and the cat")
    said = page.call("GET", f"{page.find('h1')}/text")
    assert re.fullmatch(r"L\dH\d gives [01]\.\d\d of the attention of .* not neighbours", said)
    page.click("details summary")
    assert "L1H7" in page.call("GET", f"{page.find('details table')}/text")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_fits_the_window_in_both_themes(opened, bundled_induction, theme, width) -> None:
    found = view(bundled_induction, "the cat and the " + "long" * 30, heads=["L1H0"])
    page = opened(found, theme, width)
    page.wait("return document.querySelector('.panel canvas[tabindex]')")
    page.click(".lines .query button[data-at='3']")
    page.click(".lines .key button[data-at='1']")
    page.wait("return document.querySelector('.pair .sum')")
    seen = page.run(
        "const b = getComputedStyle(document.body);"
        "return [document.documentElement.scrollWidth, b.backgroundColor, b.color]"
    )
    colours = [[int(n) for n in text[4:-1].split(",")] for text in seen[1:]]
    assert seen[0] <= width
    assert (sum(colours[0]) > sum(colours[1])) == (theme == "light")


def level(page):
    return page.wait(
        "const l = document.querySelector('.zoom .level');"
        "return l?.dataset.missing === '0' && l.textContent",
        30,
    )


def test_a_long_prompt_is_zoomed_in_the_page_down_to_single_tokens(
    opened, bundled_induction
) -> None:
    ids = np.random.default_rng(0).integers(3, bundled_induction.d_vocab, 1_300).tolist()
    ids[700:1_200] = ids[100:600]
    found = long_view(bundled_induction, ids, heads=["L1H3"], heaviest=0)
    page = opened(found)
    assert "the largest weight between 16 queries and 16 keys" in level(page)
    exact = found.tile(1, 3, (900, 1_000), (290, 310)).weights
    query, key = (int(x) for x in np.unravel_index(exact.argmax(), exact.shape))
    go = "const z = document.querySelectorAll('.zoom input'); z[0].value = arguments[0];"
    go += "z[1].value = arguments[1]; [...document.querySelectorAll('.zoom button')].at(-1).click()"
    page.run(go, 900 + query, 290 + key)
    assert "Each point is one weight" in level(page)
    said = page.wait(
        "const t = document.querySelector('.zoom output').textContent;"
        "return t.includes('weight') && t"
    )
    assert said.startswith(f"query {900 + query} ")
    assert float(said.split()[-1]) == pytest.approx(exact.max(), rel=2e-3, abs=1e-4)
    # at every level a block has its largest weight: the pattern of the whole prompt, once
    whole = bundled_induction.capture([ids], ["pattern"])["pattern", 1][0, 3].numpy()
    for block in (16, 4, 1):
        tile = page.call(
            "POST",
            "/execute/async",
            {
                "args": [block],
                "script": (
                    "const [block, done] = arguments, item = page.stacks[0].heads[11];"
                    "tileOf(item, 16, {block, row: Math.floor(900 / 64 / block),"
                    "column: Math.floor(300 / 64 / block)}).then("
                    "t => done({...t, values: [...t.values]}))"
                ),
            },
        )
        rows, columns = tile["shape"]
        part = whole[
            tile["query"] : tile["query"] + rows * block,
            tile["key"] : tile["key"] + columns * block,
        ]
        padded = np.zeros((rows * block, columns * block))
        padded[: part.shape[0], : part.shape[1]] = part
        most = padded.reshape(rows, block, columns, block).max((1, 3))
        np.testing.assert_allclose(np.reshape(tile["values"], (rows, columns)), most, atol=4e-3)
    page.run(
        "document.querySelectorAll('.passage span')[60].click();"
        "document.querySelectorAll('.passage span')[20].click()"
    )
    assert level(page).startswith("Queries 952 to ")
    page.run("location.hash = '#L1H3:1000,300'")
    page.wait("return document.querySelector('.zoom output').textContent.startsWith('query 1000 ')")
