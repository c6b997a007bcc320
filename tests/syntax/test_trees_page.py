"""The page of a search for trees: true to the result, safe with any text, offline, both themes."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from report.browser import needs_browser
from syntax.found import relation, scores, trees

from interp.core.statistics import RatioBootstrap
from interp.report.trees import trees_page
from interp.syntax.result import Drawn, TreeScores
from interp.syntax.wording import above, by_gain


class Reader(HTMLParser):
    """Tables as lists of rows of texts, every tag, and the texts outside of tables."""

    def __init__(self, page: str):
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.inside: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs) -> None:
        self.tags.append(tag)
        self.attributes += [(k, v or "") for k, v in attrs]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.inside:
            del self.inside[len(self.inside) - 1 - self.inside[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.inside):
            self.tables[-1][-1][-1] += data


def test_a_row_per_relation_by_the_lower_end_of_the_difference() -> None:
    head, *rows = Reader(trees_page([scores()])).tables[0]
    assert head == ["relation", "head", "", "found", "best offset", "difference", "p", "", "n"]
    assert [row[0] for row in rows] == ["obj", "nsubj", "vocative"]
    assert rows[0][1:] == [
        "L2H0 →",
        "",
        "72.0 [66.0, 77.0]",
        "35.5 at -2",
        "+36.5 [+29.8, +42.9]",
        "0.004",
        "above",
        "318",
    ]
    assert rows[1][5:8] == ["-10.0 [-20.0, -1.0]", "0.03", "below"]
    assert rows[2][3:] == ["72.0", "35.5 at -2", "+0.0", "1", "not told apart", "1"]


def test_few_examples_do_not_lead() -> None:
    """Four dependents, all found where the baseline finds none, in as many sentences."""
    boot = RatioBootstrap(40)
    found, none = np.r_[np.ones(4), np.zeros(36)], np.zeros(40)
    (low, high), p = boot.gain(found, none, found)
    assert (low, high) == (1.0, 1.0)
    assert p == 2 * 0.5**4  # the least that four signs can show
    few = relation("dislocated", n=4, gain=1.0, gain_interval=(low, high), p=p)
    known = relation("nmod", gain=0.5, gain_interval=(0.1, 0.9))
    sure = relation("det", gain=0.4, gain_interval=(0.3, 0.5))
    assert by_gain([few, known, sure]) == [sure, known, few]
    page = trees_page([scores(relations=(few, known, sure))])
    assert "relations with fewer than 10 dependents last" in page
    assert not above(few)


def test_what_stands_beside_the_best_head() -> None:
    _, *rows = Reader(trees_page([scores()])).tables[1]
    assert rows[0] == [
        "obj",
        "L2H0 → L3H4 →",
        "73.3 [68.0, 78.0]",
        "80.0 L1H7",
        "73.0 L2H1 ←",
        "6.0",
        "11.0",
    ]
    assert rows[2][-2:] == ["none", "none"]


def test_baselines_stand_among_the_trees() -> None:
    with_punct, without = Reader(trees_page([scores()])).tables[2:]
    assert [row[0] for row in with_punct[1:]] == [
        "maximum spanning tree",
        "adjacent chain (baseline)",
        "arborescence, gold root",
    ]
    assert with_punct[1][1:] == ["L2H8 ↔", "0.482 [0.470, 0.490]", "none", "6,775"]
    assert with_punct[3][3] == "0.280 [0.270, 0.290]"
    assert [row[2] for row in without[1:]] == ["0.508 [0.500, 0.520]"]
    only = scores(trees=(trees(),))
    assert len(Reader(trees_page([only])).tables) == 3


@pytest.mark.parametrize(
    ("p", "gain", "verdict", "n_above"),
    [
        (0.049, 0.1, "above", 1),
        (0.05, 0.1, "not told apart", 0),
        (0.049, -0.1, "below", 0),
        (0.9, 0.1, "not told apart", 0),
    ],
)
def test_a_head_is_above_only_when_corrected_p_is_small(p, gain, verdict, n_above) -> None:
    page = trees_page([scores(relations=(relation(p=p, gain=gain),))])
    assert Reader(page).tables[0][1][7] == verdict
    assert f"{n_above} of 1 relations have a head above their baseline" in page


def test_the_findings_name_the_best_trees_and_the_best_baseline() -> None:
    page = trees_page([scores()])
    assert (
        "The best trees (maximum spanning tree, L2H8) have 0.482 of the gold edges, the best "
        "baseline 0.391." in page
    )
    high = trees("adjacent chain", heads=(), uuas=0.9, baseline=True)
    told = "L2H8) have 0.482 of the gold edges, the best baseline 0.900."
    assert told in trees_page([scores(trees=(high, trees()))])
    assert "L2H8) have 0.482 of the gold edges.<" in trees_page([scores(trees=(trees(),))])
    assert "The best trees" not in trees_page([scores(trees=())])


def test_arcs_with_a_direction_must_point_the_right_way() -> None:
    [one] = scores().drawn
    turned = tuple((b, a) for a, b in one.predicted)
    for directed, wrong in ((False, 1), (True, 2)):
        page = trees_page([scores(drawn=(replace(one, predicted=turned, directed=directed),))])
        assert page.count('<path class="wrong"') == wrong


def test_bars_lines_and_cells_are_where_the_numbers_say() -> None:
    page = trees_page([scores()])
    bar = re.findall(r'<svg class="score".*?</svg>', page)[0]
    assert 'width="115.2"' in bar  # 72 % of 160
    assert 'class="error" d="M105.6 7H123.2' in bar
    assert 'class="null" d="M56.8 0v14"' in bar
    cells = re.findall(r'class="(\w+)"><title>(L\dH\d: [^<]*)<', page)
    assert cells == [
        ("q7", "L0H0: 0.100"),
        ("q32", "L0H1: 0.482"),
        ("none", "L1H0: no score"),
        ("q20", "L1H1: 0.300"),
    ]
    assert "Every head" not in trees_page([scores(by_head={"encoder": [[math.nan]]})])


def test_counts_notes_and_how_it_was_made_are_said() -> None:
    page = trees_page([scores()], command="interp study trees 'a b'", beside=["trees.json"])
    for told in (
        "1,501",
        "too long",
        "longer than the model&#39;s context: skipped",
        "interp: 0.1.0",
        "interp study trees &#39;a b&#39;",
        'href="./trees.json"',
        "2 of 3 gold edges",
    ):
        assert told in page
    assert page.index("<footer>") > page.index('class="arcs"')
    assert trees_page([scores()]) == trees_page([TreeScores.from_dict(scores().to_dict())])


def test_no_text_of_a_stranger_becomes_a_tag() -> None:
    bad = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
    drawn = Drawn((bad, "b"), (1, -1), (bad, "root"), ((0, 1),), False, bad, 1)
    hostile = scores(
        bad,
        relations=(
            relation(
                bad, head=bad, direction=bad, ensemble=(bad,), either_head=bad, oracle_head=bad
            ),
        ),
        trees=(trees(bad, heads=(bad,), direction=bad),),
        by_head={bad: [[0.5]]},
        drawn=(drawn,),
        counts={bad: 1},
        notes=(bad,),
        provenance={bad: {bad: [bad]}},
    )
    page = trees_page([hostile, hostile], title=bad, command=bad, beside=[bad])
    found = Reader(page)
    assert not {"script", "img", "iframe", "object", "link"} & set(found.tags)
    assert not [k for k, _ in found.attributes if k.startswith("on") or k == "style"]
    links = [v for k, v in found.attributes if k in ("href", "src")]
    assert all(link.startswith(("#m", "./")) for link in links)
    policy = next(v for k, v in found.attributes if "default-src" in v)
    assert "default-src 'none'" in policy
    assert "script-src" not in policy


pytest_browser = [
    pytest.mark.slow,
    needs_browser,
]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
class TestInABrowser:
    pytestmark = pytest_browser

    def test_it_fits_and_can_be_read(self, browser, tmp_path: Path, theme: str, width: int) -> None:
        words = tuple(f"word{at}" for at in range(40))
        chain = tuple((at, at + 1) for at in range(39))
        long = Drawn(words, (-1, *range(39)), ("obl:unmarked",) * 40, chain, False, "x" * 200, 39)
        path = tmp_path / "trees.html"
        path.write_text(trees_page([scores("long/" + "x" * 200, drawn=(long,)), scores()]))
        browser.emulate(theme, width)
        browser.open(path)
        assert browser.fetched() == {path.as_uri()}
        assert browser.log("browser") == []
        script = """
            const one = s => getComputedStyle(document.querySelector(s));
            const wrong = one('svg.arcs path.wrong'), hit = one('svg.arcs path.hit');
            return [document.documentElement.scrollWidth, one('body').backgroundColor,
                one('body').color, hit.stroke, wrong.stroke, wrong.strokeDasharray,
                hit.strokeDasharray]"""
        found = browser.run(script)
        assert found[0] <= width
        page, ink, hit, wrong = ([int(n) for n in c[4:-1].split(",")] for c in found[1:5])
        assert (sum(page) > sum(ink)) == (theme == "light")
        assert contrast(page, ink) > 7
        assert contrast(page, hit) > 3  # WCAG 2.2, 1.4.11
        assert contrast(page, wrong) > 3
        assert found[5] != found[6] == "none"
        assert len(browser.screenshot()) > 5000


def contrast(one: list[int], other: list[int]) -> float:
    """Contrast of two colours (WCAG 2.2)."""

    def light(rgb: list[int]) -> float:
        parts = [c / 255 for c in rgb]
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05

    low, high = sorted((light(one), light(other)))
    return high / low
