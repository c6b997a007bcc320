"""The site builds; no public name is without a docstring; no link is dead; nothing is fetched."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from report.browser import needs_browser, started

from interp.core.registry import METRICS

NEEDED = "the site needs MkDocs: pip install 'interp[docs]'"
ROOT = Path(__file__).parents[2]
FETCHES = {  # element -> attributes whose address a browser loads by itself
    "script": ("src",),
    "img": ("src", "srcset"),
    "link": ("href",),
    "iframe": ("src",),
    "source": ("src", "srcset"),
    "object": ("data",),
    "embed": ("src",),
    "video": ("src",),
    "audio": ("src",),
    "image": ("href",),
}


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
    pages = (path for path in site.rglob("*.html") if path != site / "404.html")  # of a server
    read = {path: Page(path) for path in pages}
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
    pytest.importorskip("mkdocs", reason=NEEDED)
    out = tmp_path_factory.mktemp("site") / "made"
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "build.py"), "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "WARNING" not in done.stdout + done.stderr
    return out


@pytest.mark.slow
def test_every_link_leads_somewhere_and_nothing_is_fetched(site) -> None:
    dead, fetched = problems(site)
    assert dead == []
    assert fetched == []


@pytest.mark.slow
def test_what_a_reader_looks_for_is_there(site) -> None:
    names = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    needed = {"index.html", "methods.html", "commands.html", "migration.html", "glossary.html"}
    assert needed | {"reference/index.html", "reference/interp.heads.html"} <= names
    assert {f"guides/{p.stem}.html" for p in (ROOT / "docs/guides").glob("*.md")} <= names
    books = {f"notebooks/{p.stem}.html" for p in (ROOT / "notebooks").glob("*.ipynb")}
    assert len(books) >= 9
    assert books <= names
    first = (site / "notebooks/1_find_the_induction_heads.html").read_text(encoding="utf-8")
    assert "does not claim" in first
    assert "Figure drawn by the cell above" in first
    assert "plotly.min.js" not in first
    assert "application/vnd.plotly" not in first
    assert 'id="interp.score"' in (site / "reference/interp.html").read_text(encoding="utf-8")
    detectors = (site / "methods/detectors.html").read_text(encoding="utf-8")
    assert "Attend to the token after an earlier copy of the current token" in detectors
    assert "method_pictures/detectors.svg" in detectors
    assert "interp score" in (site / "commands.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_it_is_small(site) -> None:
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 16_900_000


@pytest.mark.slow
@needs_browser
def test_pages_can_be_read_and_searched_from_disk(site) -> None:
    names = (
        "index.html",
        "methods/detectors.html",
        "guides/circuits.html",
        "notebooks/1_find_the_induction_heads.html",
    )
    with started() as browser:
        for theme in ("light", "dark"):
            for width in (390, 1400):
                browser.emulate(theme, width)
                for name in names:
                    browser.open(site / name)
                    assert browser.log("browser") == []
                    assert browser.run("return document.documentElement.scrollWidth") <= width, name
                    assert all(address.startswith("file:") for address in browser.fetched())
        found = "return [...document.querySelectorAll('.md-search-result__link')].map(x => x.href)"
        for word, page in (
            ("copy_suppression", "reference/"),
            ("generate", "acting_while_writing"),
        ):
            browser.open(site / "index.html")
            browser.run(
                "const box = document.querySelector('input.md-search__input'); box.focus();"
                f"box.value = '{word}'; box.dispatchEvent(new KeyboardEvent('keyup'));"
            )
            browser.wait(f"{found}.length")
            assert any(page in address for address in browser.run(found)), word
        assert browser.log("browser") == []


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


def test_a_dead_link_and_a_page_without_a_place_fail(tmp_path) -> None:
    """A copy of the settings with a hook that adds a page."""
    pytest.importorskip("mkdocs", reason=NEEDED)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Front\n\n[gone](gone.md)\n")
    (tmp_path / "docs" / "lost.md").write_text("# Lost\n")
    known = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    kept = {"site_name": "copy", "strict": known["strict"], "validation": known["validation"]}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(kept | {"nav": ["index.md"]}))
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "'gone.md'" in done.stderr
    assert "lost.md" in done.stderr


def test_every_guide_and_notebook_has_its_place_in_the_menu(docs) -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    in_menu = re.findall(r"docs/guides/(\w+)\.md", text)
    listed = re.findall(r"guides/(\w+)\.md", (docs / "README.md").read_text(encoding="utf-8"))
    assert sorted(in_menu) == sorted(p.stem for p in docs.glob("guides/*.md"))
    assert listed == in_menu
    books = sorted(p.name for p in (ROOT / "notebooks").glob("*.ipynb"))
    assert re.findall(r"notebooks/(\w+\.ipynb)", text) == books
    assert re.findall(r"notebooks/(\w+\.ipynb)", (docs / "README.md").read_text()) == books


def test_a_notebook_becomes_text_with_its_outputs(docs, tmp_path) -> None:
    import nbformat  # takes seconds; pytest would import a lazy module too

    pytest.importorskip("nbconvert", reason=NEEDED)
    picture = '<svg xmlns="http://www.w3.org/2000/svg"></svg>'
    figure = {"application/vnd.plotly.v1+json": {"data": []}, "image/svg+xml": picture}
    table = "<style scoped>p{x}</style>\n<table>\n\n<tr><td>7</td></tr></table>"
    outputs = [
        nbformat.v4.new_output("stream", name="stdout", text="printed"),
        nbformat.v4.new_output("display_data", data=figure),
        nbformat.v4.new_output("display_data", data={"text/html": table}),
    ]
    cells = [
        nbformat.v4.new_markdown_cell("# 9. A story\n\nText."),
        nbformat.v4.new_code_cell("1 + 1", outputs=outputs),
    ]
    path = tmp_path / "a.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    text, pictures = import_module("notebook_pages").page(path)
    assert text.startswith("# 9. A story\n\nAs a notebook: `notebooks/a.ipynb`.")
    assert "    printed" in text
    [(name, data)] = pictures.items()
    assert f"![Figure drawn by the cell above]({name})" in text
    assert data.decode().strip() == picture
    assert '<div class="output" tabindex="0"><table>\n<tr><td>7</td></tr></table></div>' in text
    assert "style scoped" not in text


def silent(package: Any) -> list[str]:
    """Public modules, classes, functions and methods without a docstring."""
    found, waiting = [], [package]
    while waiting:
        one = waiting.pop()
        found += [] if one.has_docstring else [one.path]
        if one.is_module or one.is_class:
            kinds = ("is_module", "is_class", "is_function")
            waiting += [
                member
                for member in one.members.values()
                if not member.is_alias
                and not member.name.startswith("_")
                and any(getattr(member, kind) for kind in kinds)
            ]
    return sorted(found)


@pytest.mark.slow
def test_no_public_name_is_without_a_docstring() -> None:
    griffe = pytest.importorskip("griffe", reason=NEEDED)
    for package, folder in (("interp", ROOT), ("interp_kernels", ROOT / "kernels")):
        loaded = griffe.load(package, search_paths=[str(folder)], allow_inspection=False)
        assert len(loaded.members) > 10
        assert silent(loaded) == []


def test_a_public_name_without_a_docstring_is_named(tmp_path) -> None:
    griffe = pytest.importorskip("griffe", reason=NEEDED)
    (tmp_path / "told_nothing.py").write_text(
        '"""A module."""\n\ndef spoken():\n    """Says."""\n\ndef silent():\n    pass\n\n'
        "class Mute:\n    def loud(self):\n        pass\n\n    def _own(self):\n        pass\n"
    )
    loaded = griffe.load("told_nothing", search_paths=[str(tmp_path)], allow_inspection=False)
    assert silent(loaded) == ["told_nothing.Mute", "told_nothing.Mute.loud", "told_nothing.silent"]


def test_pages_show_the_sections_that_declarations_share() -> None:
    griffe = pytest.importorskip("griffe", reason=NEEDED)
    extensions = griffe.load_extensions(str(ROOT / "docs" / "docstring_examples.py"))
    loaded = griffe.load(
        "interp.heads.geometry.minference",
        search_paths=[str(ROOT)],
        allow_inspection=False,
        extensions=extensions,
    )
    shown = loaded["minference_block_sparse"].docstring.value
    assert shown == METRICS["minference_block_sparse"].doc
    assert "keys: budget of keys per query" in shown
