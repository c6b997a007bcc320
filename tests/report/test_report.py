import base64
import errno
import math
import os
import re
import struct
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest
from core.examples import small

import interp.report.heads
from interp.core.errors import OptionError, StoreError
from interp.core.table import HeadTable
from interp.draw.colours import Scale, palette
from interp.draw.page import asset, policy_hash
from interp.report import heads_page, write_report

HOSTILE = "\"'><script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>&amp;\n"


class Page(HTMLParser):
    """What a browser would make of a page: elements with attributes, and the text in each."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.text, self.inside = [], "", []
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


def tables():
    signed = [[-0.8, 0.1], [0.3, 0.05]]
    return HeadTable.concat([small(), small(metric="copying", scores=signed, unit="")])


def test_every_head_has_its_numbers_without_scripts():
    page = Page(heads_page(tables(), ranges={"induction": (0, 1), "copying": (-1, 1)}))
    assert page.of["title"][1:] == [
        "L0H0: 0.100 ± 0.01 fraction; null 0.050; n 8",
        "L0H1: 0.900 ± 0.01 fraction; null 0.050; n 8",
        "L1H0: 0.500 ± 0.01 fraction; null 0.050; n 8",
        "L1H1: 0.200 ± 0.01 fraction; null 0.050; n 8",
        "L0H0: -0.800 ± 0.01; null 0.050; n 8",
        "L0H1: 0.100 ± 0.01; null 0.050; n 8",
        "L1H0: 0.300 ± 0.01; null 0.050; n 8",
        "L1H1: 0.050 ± 0.01; null 0.050; n 8",
    ]
    assert "on this page" not in page.text


def test_colours_follow_the_declared_range():
    def colours(**options):
        elements = Page(heads_page(small(scores=[[0.0, 0.5], [1.0, 2.0]]), **options)).elements
        return [a["class"] for tag, a in elements if tag == "rect" and a.get("height") == "23"]

    assert colours(ranges={"induction": (0, 1)}) == ["q0", "q16", "q32", "q32"]
    assert colours(ranges={"induction": (-2, 2)}) == ["d16", "d20", "d24", "d32"]
    assert colours(ranges={"induction": (0, None)}) == ["q0", "q8", "q16", "q32"]
    assert colours() == ["q0", "q8", "q16", "q32"]


def test_what_the_colours_hide_is_said():
    odd = small(scores=[[0.5, math.nan], [0.5, 7.0]], n=[[8, 0], [8, 8]])
    page = Page(heads_page(odd, ranges={"induction": (0, 1)}))
    assert "1 beyond the range, shown as its end; 1 without a score" in page.text
    assert "L0H1: no score, no prompt had a row to average" in page.of["title"]
    assert "colours: from 0 to 7, the highest score on this page" in Page(heads_page(odd)).text


def test_top_heads_by_score_and_signed_ones_at_both_ends():
    page = Page(heads_page(tables(), ranges={"copying": (-1, 1)}, top=2))
    heads = re.findall(r"L\dH\d", page.text.partition("Top heads")[2].partition("Every number")[0])
    assert heads == ["L0H1", "L1H0", "L1H0", "L0H0"]
    assert "-0.800 ± 0.01" in page.text


def test_says_how_the_scores_were_made():
    made = {"model_id": "hub/tiny", "prompts": {"design": "repeats", "n": 8}, "edits": ["zero"]}
    table = HeadTable.concat(
        [
            small(provenance=made | {"seed": 3, "options": {}}),
            small(metric="b", provenance=made | {"seed": 3, "options": {"k": 2}}),
        ]
    )
    page = heads_page(
        table, title="My heads", command="interp score 'my model'", beside=["a b.csv"]
    )
    read = Page(page)
    for text in ("hub/tiny", "design: repeats, n: 8", "zero", "k: 2", "interp score 'my model'"):
        assert text in read.text
    assert "content_hash, dtype, null, versions" in read.text  # named as not recorded
    assert read.of["title"][0] == read.of["h1"][0] == "My heads"
    assert ("a", {"href": "./a%20b.csv"}) in read.elements


@pytest.mark.parametrize("cells", [10**6, 1, 0])
def test_names_are_text_and_nothing_is_fetched(monkeypatch, cells):
    """Each string of a table is hostile; the page has our one script, and no address to load."""
    monkeypatch.setattr(interp.report.heads, "CELLS_AS_ELEMENTS", cells)
    monkeypatch.setattr(interp.report.heads, "CELLS_WITH_NUMBERS", 10**6 * cells)
    made = {HOSTILE: HOSTILE, "model_id": HOSTILE, "prompts": {HOSTILE: [HOSTILE]}}
    one = small(HOSTILE, HOSTILE, unit=HOSTILE, stack=HOSTILE, provenance=made)
    two = small(HOSTILE, HOSTILE, stack="b", provenance=made)
    three = small(HOSTILE, HOSTILE + "2", provenance={"seed": HOSTILE})
    table = HeadTable.concat([one, two, three, small("other")])
    page = heads_page(table, title=HOSTILE, command=HOSTILE, beside=[HOSTILE])
    read = Page(page)
    assert read.of["script"] == [asset("make.js") + asset("heads.js") + asset("cards.js")]
    assert "img" not in read.of
    for _, attributes in read.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
            assert attributes.get(name, "#").startswith(
                ("#", "data:image/png;", "data:text/csv;", "./")
            )
    assert HOSTILE.strip() in read.text
    code = "".join(read.of["style"] + read.of["script"])
    assert "url(" not in code
    assert "@import" not in code
    assert set(re.findall(r"\w+://[^\"\s]*", code)) == {"http://www.w3.org/2000/svg"}  # a name
    assert not re.search(r"innerHTML|insertAdjacent|document\.write|eval|fetch|XMLHttp", code)


def test_the_page_forbids_all_but_its_own_script_and_style():
    page = heads_page(small())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page).group(1)
    assert policy.startswith("default-src 'none'; img-src data:;")
    for name in ("style", "script"):
        text = re.search(rf"<{name}>(.*?)</{name}>", page, re.DOTALL).group(1)
        assert f"{name}-src '{policy_hash(text)}'" in policy


def test_can_be_reached_by_keyboard_and_read_aloud():
    page = Page(heads_page(tables()))
    maps = [a for tag, a in page.elements if tag == "svg" and a.get("class") == "map"]
    assert [a["tabindex"] for a in maps] == ["0", "0"]
    assert maps[0]["aria-label"].startswith("induction: heat map of 2 layers by 2 heads")
    assert ("output", {"aria-live": "polite"}) in page.elements
    assert ("html", {"lang": "en"}) in page.elements


def decode(png):
    """A paletted PNG as [row, column, rgb], read by the specification and not by our writer."""
    chunks, at = {}, 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        (check,) = struct.unpack(">I", png[at + 8 + size : at + 12 + size])
        assert check == zlib.crc32(kind + content)
        chunks[kind] = content
        at += 12 + size
    width, height, depth, kind = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, kind) == (8, 3)
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()  # no filter
    return np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)[lines[:, 1:]]


@pytest.mark.parametrize("declared", [(0, 1), (-1, 1)])
def test_many_heads_become_a_picture_with_the_same_colours_and_numbers(monkeypatch, declared):
    monkeypatch.setattr(interp.report.heads, "CELLS_AS_ELEMENTS", 5)
    scores = [[0.1, math.nan, 0.9], [0.0, 1.0, 5e-4]]
    table = small(scores=scores, sem=[[0.1, math.nan, 0.0041]] * 2, n=[[8, 0, 8], [8, 8, 9]])
    elements = Page(heads_page(table, ranges={"induction": declared})).elements
    (data,) = [a for tag, a in elements if tag == "svg" and a.get("class") == "map"]
    assert data["data-score"] == ".100,,.900,.000,1.000,.0005"
    assert data["data-sem"] == ".1,,.0041,.1,,.0041"
    assert data["data-null"] == ",".join([".050"] * 6)
    assert data["data-n"] == "8,0,8,8,8,9"
    bins = Scale(*declared, declared[0] < 0).bins(np.array(scores))
    for theme in ("light", "dark"):
        (image,) = [a for tag, a in elements if tag == "image" and a["class"] == theme]
        pixels = decode(base64.b64decode(image["href"].partition(",")[2]))
        colours = palette(declared[0] < 0, theme)
        for at in np.ndindex(2, 3):
            if bins[at] >= 0:
                assert "#" + pixels[at].tobytes().hex() == colours[bins[at]]
        assert "#" + pixels[0, 1].tobytes().hex() not in colours


def test_a_page_of_many_heads_stays_small(tmp_path):
    """32 layers x 64 heads x 15 metrics x 10 models is ten times this: 6.1 MB."""
    score = np.random.default_rng(0).beta(0.4, 3.0, (32, 64))
    each = [
        small("m", f"metric {i}", scores=score, sem=0.021 * score, null=0.04 * score)
        for i in range(15)
    ]
    table = HeadTable.concat(each)
    size = write_report(table, tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size == size
    assert size / len(table) < 24


def test_more_than_a_page_can_hold_is_said(monkeypatch):
    monkeypatch.setattr(interp.report.heads, "CELLS_AS_ELEMENTS", 1)
    monkeypatch.setattr(interp.report.heads, "CELLS_WITH_NUMBERS", 2)
    page = Page(heads_page(tables()))
    assert "the numbers are in the table's file" in page.text
    assert not [a for _, a in page.elements if "data-score" in a]


def test_same_table_same_bytes():
    assert heads_page(tables(), top=3) == heads_page(tables(), top=3)


def test_stacks_have_maps_of_their_own():
    both = HeadTable.concat([small(stack="encoder"), small(stack="decoder", scores=[[0.5]])])
    page = Page(heads_page(both))
    assert [text.strip() for text in page.of["figcaption"]] == [
        "induction · encoder",
        "induction · decoder",
    ]
    assert "L0H1 encoder" in page.text


def test_nothing_to_show():
    with pytest.raises(OptionError, match="no rows to show"):
        heads_page(HeadTable.concat([]))


def test_the_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
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
