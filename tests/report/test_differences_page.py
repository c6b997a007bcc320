"""The page of a comparison: its sentence, what is claimed, the same text in both models."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from report.browser import needs_browser
from report.looking import CUT, PALE

import interp
from interp.core.prompts import repeats
from interp.heads.between_models.result import ModelDifferences
from interp.report.differences_page import differences_page


@pytest.fixture(scope="module")
def damaged(planted_bystander) -> ModelDifferences:
    """The planted model against itself without its induction head's query."""
    other = interp.load("planted:bystander", name="damaged")
    with torch.no_grad():
        attention = other.module.model.layers[1].self_attn
        attention.q_proj.weight[: attention.head_dim] = 0.0
    prompts = repeats(planted_bystander, n=12, max_length=16, seed=0)
    return interp.compare(planted_bystander, other, ["induction", "first_token"], prompts)


def plain(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def test_the_first_line_is_what_changed(damaged) -> None:
    page = differences_page(damaged).decode()
    (line,) = re.findall(r"<h1>(.*?)</h1>", page)
    assert line == damaged.answer.sentence.rstrip(".")
    assert "loses 1 of 2 induction heads" in line
    assert page.index("B minus A") < page.index("<h2>Roles")


def test_only_what_is_claimed_is_among_the_heads_that_changed(damaged) -> None:
    sure = damaged.answer.heads[0]
    chance = replace(sure, head="L0H0", head_b="L0H0", p_holm=0.3, differs=False)
    answer = replace(damaged.answer, heads=(*damaged.answer.heads, chance))
    page = differences_page(replace(damaged, answer=answer)).decode()
    section = page.partition("<h2>Heads that changed")[2].partition("<section>")[0]
    names = re.findall(r'<th scope="row">(L\d+H\d+)</th>', section)
    assert names == [x.head for x in damaged.answer.heads if x.differs]
    assert names[0] == "L1H0"
    row = damaged["induction"].to_pandas().set_index(["layer", "head"]).loc[1, 0]
    assert f"{row['score']:+.3g} [{row['low']:+.3g}, {row['high']:+.3g}]" in plain(section)
    # the interval stands on the axis where its numbers say
    drawn = re.search(r'class="error" d="M([\d.]+) 7H([\d.]+)"', section)
    dot = float(re.search(r'cx="([\d.]+)"', section)[1])
    assert float(drawn[1]) <= dot <= float(drawn[2])
    assert dot < 75  # it lost, so it is left of the middle


def test_equal_models_claim_nothing(planted_bystander) -> None:
    prompts = repeats(planted_bystander, n=6, max_length=12, seed=0)
    found = interp.compare(planted_bystander, planted_bystander, ["induction"], prompts)
    page = plain(differences_page(found).decode())
    assert "0 of 8 heads differ" in page
    assert "gains and loses no role" in page


def test_the_same_text_stands_twice_with_both_rows_of_weights(damaged) -> None:
    page = differences_page(damaged).decode()
    place = damaged.patterns[0]
    assert len(place["tokens"]) == len(place["before"]) == len(place["after"]) == place["query"] + 1
    assert sum(place["before"]) == pytest.approx(1, abs=0.01)
    moved = [b - a for a, b in zip(place["before"], place["after"], strict=True)]
    assert min(moved) == pytest.approx(place["lost_weight"], abs=1e-3)
    section = page.partition("The same text in both")[2].partition("<section>")[0]
    titles = [float(x) for x in re.findall(r'title="([\d.]+)"', section)]
    n = len(place["tokens"])
    assert titles[:n] == [round(x, 3) for x in place["before"]]
    assert titles[n : 2 * n] == [round(x, 3) for x in place["after"]]
    assert "tokens" not in damaged.pattern_changes()


def test_names_and_tokens_of_others_stay_text(damaged) -> None:
    hostile = "<script>alert(1)</script>"
    places = tuple({**x, "tokens": [hostile] * len(x["tokens"])} for x in damaged.patterns)
    found = replace(damaged, patterns=places, provenance={"model": hostile})
    page = differences_page(found).decode()
    assert "<script>alert" not in page


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_everything_can_be_read(browser, damaged, tmp_path, theme, width) -> None:
    path = tmp_path / "differences.html"
    damaged.save_html(path)
    browser.emulate(theme, width)
    browser.open(path)
    assert browser.fetched() == {path.as_uri()}
    browser.run("for (const d of document.querySelectorAll('details')) d.open = true")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run(PALE) == []
    assert browser.run(CUT) == []
