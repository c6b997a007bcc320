"""Edits of `interp explore` in Chromium: chips, interventions, undo and redo."""

from __future__ import annotations

import time

import pytest
from report.browser import needs_browser
from report.exploring import corner, head, named, prompt

from interp.model.edits import zero

pytestmark = [pytest.mark.slow, needs_browser]


MINUS = "\u2212"


TEXT = "The cat sat on the mat. The cat sat on the"


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


def test_another_intervention_replaces_what_the_ablated_heads_write(live):
    prompt(live, TEXT)
    for h in (2, 11):
        corner(live, h)
    named(live, "zero(decoder L0H2, L1H3)")
    live.run(
        "const s = document.querySelector('#live fieldset select');"
        "s.value = 'uniform-attention'; s.dispatchEvent(new Event('change'))"
    )
    named(live, "uniform-attention(")
    assert live.run("return document.querySelectorAll('rect.pick.out').length") == 2
    live.run(
        "const s = document.querySelector('#live fieldset select');"
        "s.value = 'mean-dataset'; s.dispatchEvent(new Event('change'))"
    )
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
    live.run(
        "const s = document.querySelector('.chip.on select');"
        "s.value = 'mean-batch'; s.dispatchEvent(new Event('change'))"
    )
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
    live.run(
        "document.querySelector('.chip .flip').focus(); document.activeElement.dispatchEvent("
        "new KeyboardEvent('keydown', {key: 'z', ctrlKey: true, bubbles: true}))"
    )
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


def test_continuations_stand_side_by_side_and_go_with_the_edits(live, bundled_induction):
    prompt(live, TEXT)
    assert live.run("return document.querySelector('.continuation').childElementCount") == 0
    corner(live, 3)
    live.wait("return document.querySelectorAll('.continuation td').length === 2")
    sides = "return [...document.querySelectorAll('.continuation td')].map(x => x.textContent)"
    plain = bundled_induction.generate(TEXT, 20)
    changed = bundled_induction.generate(TEXT, 20, edits=[zero(["L0H3"])])
    assert live.run(sides) == [plain.text, changed.text]
    assert "new tokens; at position" in live.text(".continuation .sentence")
    corner(live, 3)
    live.wait("return document.querySelector('.continuation').childElementCount === 0")
