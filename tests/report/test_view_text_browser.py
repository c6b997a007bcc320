"""The text above the heads of a view, in Chromium: reading, pointing, keys and addresses."""

from __future__ import annotations

import numpy as np
import pytest
from report.browser import ENTER, ESCAPE, RIGHT, needs_browser
from report.viewing import head, spoken

from interp.heads.patterns import View, view

pytestmark = [
    pytest.mark.slow,
    needs_browser,
]


SHIFT = "\ue008"


SPOKEN = "return [...document.querySelectorAll('.passage span')].map(s => s.textContent)"


CLASSES = "return [...document.querySelectorAll('.passage span')].map(s => s.className)"


def drawn(opened, found):
    """The page of a view, once its first head is open."""
    page = opened(found)
    page.wait("return document.querySelector('.panel canvas')")
    return page


def hover(page, at):
    page.run(
        "document.querySelectorAll('.passage span')[arguments[0]].dispatchEvent("
        "new MouseEvent('mouseover', {bubbles: true}))",
        at,
    )


def test_the_text_shows_where_a_token_looks_and_what_looks_at_it(opened) -> None:
    """Shares of words are means over their tokens; parts of one character are one piece."""
    tokens = ["<s>", " a", "é[1/2]", "é[2/2]", "b", " cat"]
    weights = np.tril(np.random.default_rng(0).random((6, 6))) + 1e-3 * np.eye(6)
    weights /= weights.sum(-1, keepdims=True)
    page = opened(View.of_patterns(weights[None, None], tokens))
    page.wait("return document.querySelector('.panel canvas')")
    assert page.run(SPOKEN) == ["<s>", " a", "é", "b", " cat"]
    hover(page, 3)
    levels = [f"q{round(32 * np.sqrt(w))}" for w in weights[4]]
    found = page.run(CLASSES)
    pair = weights[4, 2] + weights[4, 3]
    assert found[:3] == [levels[0], levels[1], f"q{round(32 * np.sqrt(pair))}"]
    assert found[3].split() == [levels[4], "at"]
    assert found[4] == f"by{int(np.ceil(4 * np.sqrt(weights[5, 4])))}"
    said = page.text(".reading output")
    assert f"“b” looks at “é” {pair:.2f}" in said
    assert said.endswith(f"It is looked at by “cat” {weights[5, 4]:.2f}.")
    choose = "const s = document.querySelector('.reading select'); s.value = arguments[0];"
    page.run(choose + "s.dispatchEvent(new Event('change'))", "words")
    assert page.run(SPOKEN) == ["<s>", " aéb", " cat"]
    hover(page, 1)
    mean = weights[1:5, 0].mean()
    assert f"“<s>” {mean:.2f}" in page.text(".reading output")
    page.run(choose + "s.dispatchEvent(new Event('change'))", "tokens")
    assert page.run(SPOKEN) == tokens


def test_the_text_is_reached_with_the_keyboard_and_opens_pairs_and_heads(
    opened, bundled_induction
) -> None:
    found = view(bundled_induction, "the cat and the cat")
    page = drawn(opened, found)
    last = len(found.stacks[0].queries) - 1
    page.type(".passage span", RIGHT * last + ENTER)  # kept
    focus = "return document.activeElement.dataset.unit"
    assert page.run(focus) == str(last)
    page.run("document.querySelectorAll('.passage span')[1].click()")
    page.wait("return document.querySelector('.pair .others button')")
    assert page.text(".pair h4").startswith(f"query {last} ")
    heads = [h for h, w in found.stacks[0].weights.items()]
    best = sorted(heads, key=lambda h: -found.pattern(h)[last, 1])
    listed = page.run(
        "return [...document.querySelectorAll('.pair .others button')].map(b => b.textContent)"
    )
    assert listed[0] == f"{best[0]} {found.pattern(best[0])[last, 1]:.2f}"
    page.run("document.querySelector('.pair .others button:nth-of-type(2)').click()")
    page.wait(f"return document.querySelector('.panel h3').textContent === 'decoder {best[1]}'")
    page.wait("return document.querySelector('.pair h4')")
    assert page.text(".pair h4").startswith(f"query {last} ")
    assert page.run("return location.hash") == f"#{best[1]}"


def test_several_chosen_tokens_are_summed(opened) -> None:
    """By clicks with the box ticked, and by keys with Shift; the number and the sums are said."""
    tokens, rng = [f" t{i}" for i in range(6)], np.random.default_rng(0)
    weights = np.tril(rng.random((2, 6, 6))) + 1e-3 * np.eye(6)
    weights /= weights.sum(-1, keepdims=True)
    page = drawn(opened, View.of_patterns(weights[None], tokens, named=["L0H0"]))
    page.click(".reading input[type='checkbox']")
    for at in (1, 3, 4, 5, 5):  # the last one is chosen and let go again
        page.click(f".passage span[data-unit='{at}']")
    chosen = [1, 3, 4]

    def check(head: int) -> None:
        looks, seen = weights[head][chosen].sum(0), weights[head][:, chosen].sum(1)
        best = np.argsort(-looks)[:4]
        listed = ", ".join(f"“t{i}” {looks[i]:.2f}" for i in best)
        others = sorted((i for i in (0, 2, 5) if seen[i] >= 0.01), key=lambda i: -seen[i])
        by = ", ".join(f"“t{i}” {seen[i]:.2f}" for i in others)
        assert page.text(".reading output") == (
            f"L0H{head}. Sum over 3 chosen tokens: “t1”, “t3”, “t4”. They look at {listed}, of "
            f"3.00 in all. They are looked at by {by}."
        )
        shaded = [f"q{round(32 * np.sqrt(looks[i] / 3))}" if looks[i] >= 0.01 else "" for i in best]
        assert [page.run(CLASSES)[i].split()[0] for i in best] == shaded

    check(0)
    hover(page, 0)  # pointing changes nothing while several are chosen
    check(0)
    pressed = "return document.querySelectorAll('[data-unit][aria-pressed=true]').length"
    assert page.run(pressed) == 3
    page.run("document.querySelectorAll('.panel button')[1].click()")  # the next head keeps them
    page.wait("return document.querySelector('.panel h3').textContent.endsWith('L0H1')")
    check(1)
    page.type(".passage span[data-unit='0']", ESCAPE)
    assert "Sum" not in page.text(".reading output")
    page.click(".reading input[type='checkbox']")
    add = SHIFT + ENTER + SHIFT
    page.type(".passage span[data-unit='0']", RIGHT + add + RIGHT * 2 + add + RIGHT + add)
    check(1)
    page.click(".passage span[data-unit='0']")  # a plain click begins anew
    assert page.text(".reading output").startswith("L0H1. “t0” looks at ")


def test_an_address_opens_its_head_and_one_that_names_no_head_is_said(
    opened, bundled_induction
) -> None:
    found = view(bundled_induction, "the cat and the cat")
    page = drawn(opened, found)
    page.run("document.querySelector('details').open = true")
    # a row of the table leads to the largest weight of its head
    page.run("document.querySelector('th.head a[href^=\"#L1H2:\"]').click()")
    page.wait("return document.querySelector('.panel h3')?.textContent === 'decoder L1H2'")
    page.wait("return document.querySelector('.pair h4')")
    off = found.pattern("L1H2")[1:]
    assert page.text(".pair h4").endswith(f"weight {spoken(off.max())}")
    page.run("location.hash = '#L1H2:99,0'")
    page.wait("return !document.querySelector('header .warning').hidden")
    assert "no query 99 and key 0 of L1H2" in page.text("header .warning")
    page.run("location.hash = '#L7H9'")
    page.wait("return document.querySelector('header .warning').textContent.includes('L7H9')")
    told = page.text("header .warning")
    assert told == (
        "This page has no head “L7H9”, which its address asks for; it has L0H0 to L1H7."
    )
    assert head(page) == "decoder L1H2"
    page.run("location.hash = '#L0H1'")
    page.wait("return document.querySelector('.panel h3')?.textContent === 'decoder L0H1'")
    assert page.run("return document.querySelector('header .warning').hidden")


def test_a_text_from_right_to_left_is_one_line_that_arrows_follow(opened) -> None:
    tokens = ["<b>", " שלום", " עולם", "\u202e"]
    page = opened(View.of_patterns(np.full((1, 1, 4, 4), 0.25), tokens))
    page.wait("return document.querySelector('.panel canvas')")
    assert (
        page.run("return getComputedStyle(document.querySelector('.passage')).direction") == "ltr"
    )
    assert page.run(SPOKEN)[3].strip() == "[U+202E]"
    page = opened(View.of_patterns(np.full((1, 1, 3, 3), 1 / 3), ["שלום", " עולם", " x"]))
    page.wait("return document.querySelector('.panel canvas')")
    assert (
        page.run("return getComputedStyle(document.querySelector('.passage')).direction") == "rtl"
    )
    page.type(".passage span", "\ue012")  # to the left, where the text goes on
    assert page.run("return document.activeElement.dataset.unit") == "1"


def test_tokens_of_a_head_in_less_detail_are_read_by_its_blocks(opened) -> None:
    """No share is counted twice: those of one row of blocks sum to one."""
    n = 64
    weights = np.random.default_rng(0).dirichlet(np.ones(n), (1, 20, n))
    found = View.of_patterns(weights, [f" t{i}" for i in range(n)])
    whole = len(found.html(budget=10**7).encode())
    page = opened(found, budget=whole - 20 * n * n * 2 * 4 // 3 + 95_000)  # 12 heads in full
    page.wait("return document.querySelector('.panel canvas')")
    assert page.run("return opened.shown.block") == 1  # the head that opens is in full
    at = page.run("return page.stacks[0].heads.findIndex((head) => head.block > 1)")
    page.run("open(0, arguments[0])", at)
    page.wait("return opened.shown.block > 1")
    block = page.run("return opened.shown.block")
    assert len(page.run(SPOKEN)) == n // block
    of_unit = "reading.places.reduce((sum, v) => sum + reading.weight(u, v), 0)"
    sums = page.run(f"return reading.places.map((u) => {of_unit})")
    np.testing.assert_allclose(sums, 1, atol=0.02)
