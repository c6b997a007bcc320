"""The site builds; no public name is without a docstring; no link is dead; nothing is fetched."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import pytest
from report.browser import needs_browser, started

ROOT = Path(__file__).parents[2]
FETCHES = {  # element -> attributes whose address a browser loads by itself
    "script": ("src",), "img": ("src", "srcset"), "link": ("href",), "iframe": ("src",),
    "source": ("src", "srcset"), "object": ("data",), "embed": ("src",), "video": ("src",),
    "audio": ("src",), "image": ("href",),
}  # fmt: skip


class Page(HTMLParser):
    """Links, anchors, and what the page loads by itself."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[x] for x in ("id", "name") if x in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.loads += [given[a] for a in FETCHES.get(tag, ()) if a in given]
        if given.get("http-equiv", "").lower() == "refresh":
            self.links.append(given["content"].partition("url=")[2])
        self.handle_data(given.get("style", ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "style" or "url(" in data:
            self.loads += re.findall(r"""url\(["']?([^"')]+)""", data)
            self.loads += re.findall(r"""@import\s+["']([^"']+)""", data)


def problems(site: Path) -> tuple[list[str], list[str]]:
    """Dead links inside the site, and what pages load from elsewhere."""
    read = {path: Page(path) for path in site.rglob("*.html")}
    dead, fetched = [], []
    for path, page in read.items():
        for link in page.links:
            if re.match(r"[a-z][a-z+.-]*:", link):
                continue
            file, _, anchor = unquote(link).partition("#")
            target = (path.parent / file).resolve() if file else path
            known = read.get(target)
            if not target.is_file() or (anchor and known and anchor not in known.anchors):
                dead.append(f"{path.relative_to(site)} -> {link}")
        for address in page.loads:
            local = address.startswith(("data:", "#"))
            if re.match(r"([a-z][a-z+.-]*:)?//", address) and not local:
                fetched.append(f"{path.relative_to(site)} -> {address}")
            elif not local and not (path.parent / address).resolve().is_file():
                dead.append(f"{path.relative_to(site)} -> {address}")
    return dead, fetched


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("pdoc", reason="the site needs pdoc: pip install 'interp[docs]'")
    out = tmp_path_factory.mktemp("site") / "made"
    # of its own process: it puts functions in the place of what is declared
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "build.py"), "--without-running", "--out", str(out)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@pytest.mark.slow
def test_every_link_leads_somewhere_and_nothing_is_fetched(site) -> None:
    dead, fetched = problems(site)
    assert dead == []
    assert fetched == []


@pytest.mark.slow
def test_what_a_reader_looks_for_is_there(site) -> None:
    names = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {"index.html", "methods.html", "commands.html", "api/index.html"} <= names
    assert {f"guides/{p.stem}.html" for p in (ROOT / "docs/guides").glob("*.md")} <= names
    stories = {f"notebooks/{p.stem}.html" for p in (ROOT / "notebooks").glob("*.ipynb")}
    assert len(stories) >= 8
    assert stories <= names
    assert stories <= set(Page(site / "index.html").links)
    told = (site / "notebooks/1_find_the_induction_heads.html").read_text(encoding="utf-8")
    assert "Built without running" in told
    assert "does not claim" in told
    assert 'class="name">score<' in (site / "api" / "interp.html").read_text(encoding="utf-8")
    detector = (site / "api/interp/heads/detectors/induction.html").read_text(encoding="utf-8")
    assert "Attend to the token after an earlier copy of the current token" in detector
    assert "interp score" in (site / "commands.html").read_text(encoding="utf-8")


@pytest.mark.slow
@needs_browser
def test_pages_can_be_read_wide_and_narrow_light_and_dark(site) -> None:
    from report.looking import CUT, PALE

    names = ("index.html", "methods.html", "guides/circuits.html",
             "notebooks/1_find_the_induction_heads.html")  # fmt: skip
    place = "const b = (s) => document.querySelector(s).getBoundingClientRect();"
    with started() as browser:
        for theme in ("light", "dark"):
            for width in (390, 1400):
                browser.emulate(theme, width)
                for name in names:
                    browser.open(site / name)
                    assert browser.log("browser") == []
                    assert browser.run(PALE) == [], (name, theme)
                    assert browser.run(CUT) == [], (name, width)
                    if width == 390:  # the text first, and a way to the menu below it
                        assert browser.run(f"{place} return b('main').bottom <= b('#pages').top")
                        assert browser.run(f"{place} return b('a.contents').height") > 0
                    else:
                        assert browser.run(f"{place} return b('#pages').right <= b('main').left")
                        assert browser.run(f"{place} return b('main').width") > 1000


def test_the_checks_see_a_dead_link_and_a_fetch(tmp_path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here"></a><a href="b.html#gone"></a><a href="c.html"></a>'
        '<a href="https://example.org/"></a><img src="data:,"><img src="//cdn.org/x.png">'
        "<style>@import 'https://x.org/s.css'; p{background:url(http://y.org/i.png)}</style>"
    )
    (tmp_path / "b.html").write_text('<p id="here" style="background:url(https://z.org/z)">')
    dead, fetched = problems(tmp_path)
    assert dead == ["a.html -> b.html#gone", "a.html -> c.html"]
    assert sorted(fetched) == [
        "a.html -> //cdn.org/x.png",
        "a.html -> http://y.org/i.png",
        "a.html -> https://x.org/s.css",
        "b.html -> https://z.org/z",
    ]


def test_every_guide_has_its_place_in_the_menu(docs) -> None:
    pytest.importorskip("pdoc", reason="the pages need pdoc: pip install 'interp[docs]'")
    pages = import_module("pages")
    assert sorted(pages.READING_ORDER) == sorted(p.stem for p in docs.glob("guides/*.md"))
    listed = re.findall(r"guides/(\w+)\.md", (docs / "README.md").read_text(encoding="utf-8"))
    assert tuple(listed) == pages.READING_ORDER


def test_a_public_name_without_a_docstring_is_named(docs, tmp_path, monkeypatch) -> None:
    pytest.importorskip("pdoc", reason="the reference needs pdoc: pip install 'interp[docs]'")
    import pdoc.doc

    reference = import_module("reference")

    (tmp_path / "told_nothing.py").write_text(
        '"""A module."""\n\ndef spoken():\n    """Says."""\n\ndef silent():\n    pass\n\n'
        "class Mute:\n    def loud(self):\n        pass\n\n    def _own(self):\n        pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = reference.undocumented(pdoc.doc.Module.from_name("told_nothing"))
    assert found == ["told_nothing.silent", "told_nothing.Mute", "told_nothing.Mute.loud"]
