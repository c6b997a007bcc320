"""Printed verdicts on hypotheses about heads, and their pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interp.core.result_rows import ResultRows
from interp.profiles.verdict import HOLDS, IN_PART, NOT, OPEN
from interp.report.printed.hypothesis import hypothesis_text

NAN = float("nan")
HOSTILE = "<script>alert(1)</script>"
NUMBERS = {
    "share of what is left": (0.6, 0.55, 0.65),
    "position": (0.11, 0.1, 0.12),
    "with_position": (0.64, 0.6, 0.68),
    "random_keys": (-0.001, -0.002, 0.001),
    "other_text_with_position": (-0.07, -0.1, -0.03),
    "attention: stops": (0.44, 0.39, 0.48),
    "even attention: stops": (0.07, 0.06, 0.08),
    "attention: previous": (0.2, 0.15, 0.25),
    "even attention: previous": (0.03, 0.02, 0.04),
    "other heads of the layer, median": (0.01, NAN, NAN),
    "loss without the pattern": (0.013, 0.005, 0.022),
    "causal share": (0.46, 0.13, 0.71),
}
ASKED = {
    "number": 1,
    "asked": "L0H0=names",
    "verdict": NOT,
    "p": {HOLDS: 1.0, IN_PART: 0.4},
    "level": {HOLDS: 0.00027, IN_PART: 0.00027},
    "documents": 64,
    "time": "2026-11-30T07:00:00+00:00",
}
EXAMPLE = {"kind": "said", "query": " cat", "key": " dog", "text": "a \n cat", "said": 0.4}


def a_verdict(word: str = HOLDS, numbers: Any = NUMBERS, **facts: Any) -> ResultRows:
    rows = [
        {"number": name, "score": score, "low": low, "high": high, "n": 32, "unit": "share"}
        for name, (score, low, high) in numbers.items()
    ]
    said = {
        "metric": "explained",
        "verdict": word,
        "hypothesis": "L6H1=stops",
        "reference": "position",
        "question": 3,
        "questions": [ASKED, ASKED | {"number": 2, "asked": HOSTILE}],
        "p": {HOLDS: 0.001, IN_PART: 1e-9},
        "levels": {HOLDS: 0.002, IN_PART: 0.0025},
        "beaten": [],
        "needed": 90,
        "fresh_left": 1,
        "claimed": [0.4, 0.9],
        "examples": [EXAMPLE | {"did": 0.02}],
    }
    made = {"model_id": "stories", "text": {}}
    return ResultRows("Verdict", rows, ("number",), made, said | facts)


def printed(found: ResultRows) -> str:
    return " ".join(hypothesis_text([found]).split())


@pytest.mark.parametrize("word", [HOLDS, IN_PART, NOT, OPEN])
def test_the_first_line_has_the_word_and_the_share(word: str) -> None:
    line = f"L6H1=stops: {word}; explained 0.60 [0.55, 0.65] (stories, question 3)"
    found = a_verdict(word)
    assert hypothesis_text([found]).splitlines()[0] == found.first_line() == line
    assert str(found).splitlines()[0] == line
    assert ("about 90 fresh documents would tell" in printed(found)) == (word == OPEN)


def test_it_says_what_was_asked_and_tested() -> None:
    text = printed(a_verdict())
    assert "0.60 [0.55, 0.65] of what position leaves unexplained" in text
    assert "the mean over 32 fresh documents" in text
    assert "control: position and random keys 0.00 [0.00, 0.00]" in text  # no minus
    assert "same hypothesis 0.01" in text
    assert '"holds" p = 0.001, level 0.002; "holds in part" p = 1e-09, level 0.0025' in text
    assert "1 further document can judge" in text
    assert "from ' cat' to ' dog': predicted 0.40, attention 0.02 ...a cat" in text


def test_claimed_shares_lie_inside_or_outside_the_interval() -> None:
    text = printed(a_verdict())
    assert "stops 0.44 [0.39, 0.48] beside 0.07; claimed 0.40, inside the interval" in text
    assert "previous 0.20 [0.15, 0.25] beside 0.03; claimed 0.90, outside the interval" in text
    assert "claimed" not in printed(a_verdict(claimed=[None, None]))


def test_a_hypothesis_about_positions_is_compared_with_even_attention() -> None:
    numbers = {"share of what is left": (0.26, 0.24, 0.27), "alone": (0.26, 0.24, 0.27)}
    found = a_verdict(IN_PART, numbers, reference="even", claimed=[], beaten=["other_text_alone"])
    text = printed(found)
    assert "of what even attention leaves unexplained" in text
    assert "so far ahead of this control: the hypothesis, read on another document." in text
    assert "loss" not in text
    assert "keys that it names" not in text


def test_a_limited_claim_says_where_it_was_judged() -> None:
    """In the first line, and wherever a number is about these queries alone."""
    at = {"limit": "from names", "queries": 0.031, "texts": 90, "of_texts": 96, "judged": 128}
    numbers = NUMBERS | {"attention of the queries of the kind": (0.04, 0.03, 0.05)}
    found = a_verdict(OPEN, numbers, at=at)
    assert found.first_line().startswith(
        f"L6H1=stops: {OPEN}, at names alone (3.1% of the queries, 4.0% of its attention);"
    )
    text = printed(found)
    assert "90 of the 96 texts read have such queries, and 128 of these queries judge." in text
    assert "stops 0.44 [0.39, 0.48] beside 0.07; claimed 0.40, inside the interval; 1.8% of" in text
    assert "+0.013 [+0.005, +0.022] nats per such query" in text
    assert "about 90 fresh documents with queries from names would tell" in text
    before = a_verdict(OPEN, numbers, at=at | {"limit": "before names"})
    assert f"{OPEN}, before names alone (3.1%" in before.first_line()
    nothing = a_verdict(OPEN, dict.fromkeys(numbers, (NAN, NAN, NAN)), at=at)
    assert "nan" not in printed(nothing)


def test_undefined_numbers_are_said_to_be() -> None:
    found = a_verdict(OPEN, dict.fromkeys(NUMBERS, (NAN, NAN, NAN)), needed=None)
    text = printed(found)
    assert "nan" not in text
    assert "stops undefined beside undefined; claimed 0.40 previous" in text
    assert "No increase is shown" in text
    assert np.isnan(found.score).all()


def test_texts_of_users_are_escaped_on_the_page(tmp_path) -> None:
    hostile = EXAMPLE | {"did": 0.02, "text": HOSTILE, "query": HOSTILE}
    found = a_verdict(hypothesis=f"L6H1={HOSTILE}", examples=[hostile])
    found.save_html(tmp_path / "v.html")
    page = (tmp_path / "v.html").read_text(encoding="utf-8")
    assert HOSTILE not in page
    assert "alert(1)" in page
    assert "control: position and random keys" in page


def test_the_page_lists_the_ledger(tmp_path) -> None:
    a_verdict().save_html(tmp_path / "v.html")
    page = (tmp_path / "v.html").read_text(encoding="utf-8")
    listed = page[page.index("Questions of the ledger so far") :]
    assert "L0H0=names" in listed
    assert "alert(1)" in listed
    assert "p, holds in part" in listed
