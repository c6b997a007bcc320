"""Dependency arcs as a picture: what is drawn, where, and that no two lines run along another."""

from __future__ import annotations

import re
from itertools import combinations, permutations
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from interp.core.resources import folder
from interp.draw.page import asset
from interp.report.arcs import arcs, letters
from interp.syntax.conllu import read_conllu

WORDS = ("The", "dog", "chased", "a", "cat")
HEADS = (1, 2, -1, 4, 2)
RELATIONS = ("det", "nsubj", "root", "det", "obj")
PATH = re.compile(r"M([\d.]+) ([\d.]+)V[\d.]+Q[\d.]+ ([\d.]+) .*H[\d.]+Q([\d.]+) ")


def drawn(*predicted: tuple[int, int], words=WORDS, heads=HEADS, relations=RELATIONS, **options):
    return ElementTree.fromstring(arcs(words, heads, relations, predicted, **options))


def titles(svg: ElementTree.Element, side: str) -> dict[str, str]:
    """What each arc of a side says, and its class."""
    out = {}
    for group in svg.findall("g"):
        told = group.findtext("title") or ""
        if told.startswith(side):
            out[told] = group.findall("path")[0].get("class") or ""
    return out


def lines(svg: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    """Of every arc: its left and right end, where it leaves the words, and where it runs."""
    out = []
    for path in svg.findall("g/path"):
        match = PATH.match(path.get("d") or "")
        if match:
            left, base, run, right = map(float, match.groups())
            out.append((left, right, base, run))
    return out


def test_right_and_wrong_arcs_without_a_direction() -> None:
    svg = drawn((0, 1), (2, 1), (0, 4))
    assert titles(svg, "predicted") == {
        "predicted The - dog: right": "hit",
        "predicted chased - dog: right": "hit",
        "predicted The - cat: wrong": "wrong",
    }
    assert titles(svg, "gold") == {
        "gold det: dog -> The, predicted too": "gold",
        "gold nsubj: chased -> dog, predicted too": "gold",
        "gold det: cat -> a, not predicted": "missed",
        "gold obj: chased -> cat, not predicted": "missed",
    }
    assert svg.get("aria-label") == "2 of 3 predicted arcs are right: The dog chased a cat"


def test_with_a_direction_an_arc_must_point_the_right_way() -> None:
    svg = drawn((0, 1), (2, 1), directed=True)
    assert titles(svg, "predicted") == {
        "predicted The -> dog: wrong": "wrong",
        "predicted chased -> dog: right": "hit",
    }
    assert "gold det: dog -> The, not predicted" in titles(svg, "gold")


def test_what_is_wrong_is_told_without_colour() -> None:
    for kind in ("wrong", "missed"):
        [rule] = re.findall(rf"arcs \.{kind} {{([^}}]*)}}", asset("style.css"))
        assert "stroke-dasharray" in rule
    svg = drawn((0, 4), (0, 1))
    assert len(svg.findall("g/path[@class='cross']")) == 1


def test_tips_are_at_the_dependent() -> None:
    svg = drawn((2, 1), (2, 4), directed=True)
    for group in svg.findall("g"):
        told = group.findtext("title") or ""
        path, tip = group.findall("path")[:2]
        match = PATH.match(path.get("d") or "")
        assert match is not None
        at = float((tip.get("d") or "")[1:].split(" ")[0])
        head, dependent = re.findall(r"(\w+) -> (\w+)", told)[0]
        leftwards = WORDS.index(dependent) < WORDS.index(head)
        assert at == float(match[1] if leftwards else match[4])


def test_predicted_arcs_are_above_and_gold_ones_below() -> None:
    svg = drawn((0, 4), (1, 2))
    words = {float(t.get("y") or 0) for t in svg.findall("text")}
    assert len(words) == 1
    [y] = words
    above = [run for *_, base, run in lines(svg) if base < y]
    assert len(above) == 2
    assert all(run < y - 20 for run in above)
    assert all(run > y + 20 for *_, base, run in lines(svg) if base > y)
    assert float(svg.get("height") or 0) >= max(run for *_, run in lines(svg))
    assert [t.text for t in svg.findall("text") if "root" in (t.get("class") or "")] == ["chased"]


def test_every_text_is_escaped() -> None:
    bad = "</text><script>alert('&\"')</script>"
    svg = drawn((0, 1), words=(bad, "b"), heads=(1, -1), relations=(bad, "root"), name=bad)
    assert not svg.findall(".//script")
    assert svg.findall("text")[0].text == bad
    assert bad in (svg.get("aria-label") or "")
    assert bad in (svg.findall("g/text")[0].text or "")


def test_one_word_has_no_arcs() -> None:
    svg = drawn(words=("Yes",), heads=(-1,), relations=("root",))
    assert lines(svg) == []
    assert svg.get("aria-label") == "0 of 0 predicted arcs are right: Yes"


@pytest.mark.parametrize(("text", "n"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("", 0)])
def test_the_width_of_wide_and_combining_letters(text: str, n: int) -> None:
    assert letters(text) == n


@st.composite
def trees(draw) -> tuple[list[str], list[int]]:
    n = draw(st.integers(2, 12))
    order = draw(st.permutations(range(n)))
    heads = [-1] * n
    for k, word in enumerate(order[1:], 1):
        heads[word] = order[draw(st.integers(0, k - 1))]
    return draw(st.lists(st.text("abc", max_size=9), min_size=n, max_size=n)), heads


@given(trees())
@example(([""] * 11, [-1, *[0] * 10]))  # many arcs on one word
def test_no_line_runs_along_another(tree) -> None:
    words, heads = tree
    predicted = [(at - 1, at) for at in range(1, len(words))]
    svg = drawn(*predicted, words=words, heads=heads, relations=["obl:unmarked"] * len(words))
    found = lines(svg)
    assert len(found) == 2 * (len(words) - 1)
    width = float(svg.get("width") or 0)
    for left, right, _, _ in found:
        assert 0 <= left < right <= width
    assert all(0 < run < float(svg.get("height") or 0) for *_, run in found)
    assert all(
        right - left > 6 * len("obl:unmarked") for left, right, base, run in found if run > base
    )
    for (l1, r1, b1, y1), (l2, r2, b2, y2) in combinations(found, 2):
        if b1 == b2:
            assert not {l1, r1} & {l2, r2}, "two lines stand on one spot"
            assert y1 != y2 or r1 <= l2 or r2 <= l1, "two arcs run at one height"


def test_the_arcs_of_a_tree_without_crossings_do_not_cross() -> None:
    for one in read_conllu(folder("data") / "treebank.conllu"):
        predicted = [(head, at) for at, head in enumerate(one.heads) if head >= 0]
        svg = drawn(*predicted, words=one.words, heads=one.heads, relations=one.relations)
        for (l1, r1, b1, y1), (l2, r2, b2, y2) in permutations(lines(svg), 2):
            if b1 == b2 and abs(y1 - b1) > abs(y2 - b2):
                assert not l2 < l1 < r2, one.text
                assert not l2 < r1 < r2, one.text
