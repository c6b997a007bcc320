"""The page of one table: what it holds without scripts, hostile names, budget, writing."""

from __future__ import annotations

import errno
import math
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from core.examples import small

from interp.core.calibration import measured_error
from interp.core.errors import OptionError, StoreError
from interp.core.table import HeadTable
from interp.draw.page import asset, policy_hash
from interp.report import write_report
from interp.report.atlas.page import SCRIPTS

HOSTILE = "\"'><script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>&amp;\n"


class Page(HTMLParser):
    """What a browser would make of a page: elements with attributes, and the text in each."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.inside = "", []
        self.of: dict[str, list[str]] = {}
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.of.setdefault(tag, []).append("")
        self.inside.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        self.text += data if self.inside[-1:] not in (["script"], ["style"]) else ""
        if self.inside:
            self.of[self.inside[-1]][-1] += data


@pytest.fixture
def page_of(tmp_path):
    def made(table: HeadTable, **options) -> str:
        size = write_report(table, tmp_path / "page.html", **options)
        text = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert len(text.encode()) == size
        return text

    return made


def tables() -> HeadTable:
    signed = [[-0.8, 0.1], [0.3, 0.05]]
    return HeadTable.concat([small(), small(metric="copying", scores=signed, unit="")])


def first_heads(page: str) -> list[list[str]]:
    """The cells of the table of metrics, without its drawn bars."""
    body = page.partition('class="metrics"')[2].partition("</table>")[0].partition("<tbody>")[2]
    cells = [
        re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", r) for r in re.findall("<tr>(.*?)</tr>", body)
    ]
    plain = [[re.sub("<[^>]*>", "", c) for c in row if "<svg" not in c] for row in cells]
    return plain


def test_the_first_heads_of_every_metric_are_read_without_scripts(page_of) -> None:
    assert first_heads(page_of(tables())) == [
        # t(7) = 2.364624 times 0.01
        ["induction fraction", "L0H1", "0.900", "[0.876, 0.924]", "0.050", "", "8"],
        ["L1H0", "0.500", "[0.476, 0.524]", "0.050", "", "8"],
        ["L1H1", "0.200", "[0.176, 0.224]", "0.050", "", "8"],
        # of a metric with both signs, both ends
        ["copying ", "L1H0", "0.300", "[0.276, 0.324]", "0.050", "", "8"],
        ["L0H1", "0.100", "[0.076, 0.124]", "0.050", "", "8"],
        ["L0H0", "-0.800", "[-0.824, -0.776]", "0.050", "", "8"],
    ]


def test_without_a_null_nothing_is_claimed_and_the_intervals_are_shown(page_of) -> None:
    page = page_of(small(scores=[[0.1, 0.9], [0.5, 0.2]], null=math.nan, sem=0.1, n=8))
    still = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "not judged" in still
    assert "What its heads do" not in still
    assert still.index("First heads by each metric") < still.index("Heads and roles")
    assert first_heads(page)[0] == [
        "induction fraction",
        "L0H1",
        "0.900",
        "[0.664, 1.136]",
        "",
        "",
        "8",
    ]
    # the map is coloured by the metric, and a bar says how
    assert re.search(r"Map of the heads of tiny, decoder, by induction", still)
    assert 'class="bar bar-q"' in still


def test_effects_of_ablations_colour_the_map_of_a_page_without_scores(page_of) -> None:
    label = "ablation:kind=zero,task=copy_loss"
    table = small(metric=label, scores=[[0.1, 0.9], [-0.5, 0.2]], null=math.nan, unit="nats")
    page = page_of(table)
    assert f"decoder, by {label}" in page
    assert 'class="bar bar-d"' in page
    assert [row[-5] for row in first_heads(page)] == ["0.900", "0.200", "-0.500"]
    both = page_of(HeadTable.concat([table, small()]))
    assert "decoder, by role" in both  # roles first, where there are scores


def test_a_declared_range_sets_the_colours(page_of) -> None:
    def colours(**options) -> list[str]:
        table = small(scores=[[0.0, 0.5], [1.0, 2.0]], metric="own", null=math.nan)
        page = page_of(table, **options)
        return sorted(set(re.findall(r'<path class="([qd]\d+)"', page)))

    assert colours(ranges={"own": (0, 1)}) == ["q0", "q16", "q32"]
    assert colours(ranges={"own": (-2, 2)}) == ["d16", "d20", "d24", "d32"]
    assert colours(ranges={"own": (0, None)}) == ["q0", "q16", "q32", "q8"]
    assert colours() == ["q0", "q16", "q32", "q8"]


def test_a_head_without_a_score_is_grey_and_a_metric_without_one_is_said(page_of) -> None:
    odd = small(scores=[[0.5, math.nan], [0.5, 7.0]], n=[[8, 0], [8, 8]], null=math.nan)
    assert '<path class="none"' in page_of(odd)
    none = small(metric="other", scores=[[math.nan] * 2] * 2, n=0, null=math.nan)
    page = page_of(HeadTable.concat([odd, none]))
    assert first_heads(page)[-1] == ["other fraction", "no head has a score: no prompt had a row"]


def test_says_how_the_scores_were_made(page_of) -> None:
    made = {"model_id": "hub/tiny", "prompts": {"design": "repeats", "n": 8}, "edits": ["zero"]}
    table = HeadTable.concat(
        [
            small(provenance=made | {"seed": 3, "options": {}}),
            small(metric="b", provenance=made | {"seed": 3, "options": {"k": 2}}),
        ]
    )
    page = page_of(table, title="My heads", command="interp score 'my model'", beside=["a b.csv"])
    read = Page(page)
    for text in ("hub/tiny", '"design": "repeats"', '"k": 2', "interp score 'my model'"):
        assert text in read.text
    assert read.of["title"][0] == "My heads"
    assert read.of["h1"][0] == "tiny: 1 of 4 heads have a role: 1 induction"
    assert ("a", {"href": "./a%20b.csv"}) in read.elements
    assert measured_error() in read.text


def test_names_are_text_and_nothing_is_fetched(page_of) -> None:
    """Each string of a table is hostile; the page has our one script, and no address to load."""
    made = {HOSTILE: HOSTILE, "model_id": HOSTILE, "prompts": {HOSTILE: [HOSTILE]}}
    one = small(HOSTILE, HOSTILE, unit=HOSTILE, stack=HOSTILE, provenance=made)
    two = small(HOSTILE, HOSTILE, stack="b", provenance=made)
    three = small(HOSTILE, HOSTILE + "2", provenance={"seed": HOSTILE})
    table = HeadTable.concat([one, two, three, small("other")])
    page = page_of(table, title=HOSTILE, command=HOSTILE, beside=[HOSTILE])
    read = Page(page)
    data, script = read.of["script"]
    assert script == "".join(asset(f"{name}.js") for name in ("make", *SCRIPTS))
    assert "<" not in data
    assert "img" not in read.of
    for _, attributes in read.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
            assert attributes.get(name, "#").startswith(("#", "./"))  # type: ignore[union-attr]
    assert HOSTILE.strip() in read.text
    code = "".join([*read.of["style"], script])
    assert "url(" not in code
    assert "@import" not in code
    assert set(re.findall(r"\w+://[^\"\s]*", code)) == {"http://www.w3.org/2000/svg"}  # a name
    assert not re.search(r"innerHTML|insertAdjacent|document\.write|eval\(|fetch|XMLHttp", code)


def test_the_page_forbids_all_but_its_own_script_and_style(page_of) -> None:
    page = page_of(small())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]  # type: ignore[index]
    assert policy.startswith("default-src 'none'; img-src data:;")
    for name in ("style", "script"):
        text = re.search(rf"<{name}>(.*?)</{name}>", page, re.DOTALL)[1]  # type: ignore[index]
        assert f"{name}-src '{policy_hash(text)}'" in policy


def test_a_page_of_many_heads_stays_small(page_of) -> None:
    """32 layers x 64 heads x 15 metrics."""
    score = np.random.default_rng(0).beta(0.4, 3.0, (32, 64))
    each = [
        small("m", f"metric {i}", scores=score, sem=0.021 * score, null=0.04 * score)
        for i in range(15)
    ]
    table = HeadTable.concat(each)
    assert len(page_of(table)) / len(table) < 45  # both ends of every interval among them
    with pytest.raises(OptionError, match=r"least detail, more than 0\.01 MB\. Give fewer"):
        page_of(table, budget=10_000)


def test_same_table_same_bytes(page_of) -> None:
    assert page_of(tables()) == page_of(tables())


def test_stacks_have_maps_of_their_own(page_of) -> None:
    both = HeadTable.concat([small(stack="encoder"), small(stack="decoder", scores=[[0.5]])])
    page = page_of(both)
    assert Page(page).of["figcaption"] == ["encoder", "decoder"]
    assert page.count('class="map"') == 2


def test_nothing_to_show(tmp_path) -> None:
    with pytest.raises(OptionError, match="no rows to show"):
        write_report(HeadTable.concat([]), tmp_path / "page.html")


def test_the_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "page.html"
    write_report(small(), path, title="first")
    before = path.read_bytes()

    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreError, match=r"no space left for .*page\.html"):
        write_report(small(), path, title="second")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
