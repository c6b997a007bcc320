"""MkDocs hook: the files of the repository as the files of the site, with generated pages.

A file keeps its path in the repository, so a link that works there works in the site, and MkDocs
reports every link that does not. Generated are a page for each kind of method (`method_pages.py`),
commands and the reference (`reference.py`); notebooks become pages with the outputs that they are
stored with. The tables of methods, papers and measured errors stand in their files (`tables.py`).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))  # its neighbours, however it is called

import method_pages  # noqa: E402 - after the line above
import notebook_pages  # noqa: E402
import reference  # noqa: E402

WRITTEN = (  # pages and pictures that are files
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "docs/*.md",
    "docs/guides/*.md",
    "docs/*.png",
    "docs/assets/*",
    "docs/method_pictures/*.svg",
    "benchmarks/**/*.md",
    "benchmarks/**/*.svg",
    "circuits/*.md",
)
EXCLUDED = "data-search-exclude"  # attribute of what the search leaves out


class _Notebook(File):
    """A notebook, which is a page."""

    def is_documentation_page(self) -> bool:
        return True


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the menu with the generated pages and the benchmarks."""
    nav = {name: pages for entry in config.nav or () for name, pages in entry.items()}
    nav["Methods"] += [f"docs/methods/{name}.md" for name in method_pages.names()]
    nav["Reference"] += [reference.source(name) for name in reference.PACKAGES]
    nav["Benchmarks"] += sorted(
        p.relative_to(ROOT).as_posix() for p in ROOT.glob("benchmarks/**/*.md")
    )
    nav["Benchmarks"] += ["circuits/README.md"]
    return config


@event_priority(100)  # before other plugins look at the files
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of docs/ by those of the repository and the generated ones."""
    found = []
    for pattern in WRITTEN:
        for path in sorted(ROOT.glob(pattern)):
            source = path.relative_to(ROOT).as_posix()
            found.append(_file(config, source, path.read_bytes()))
    for source, text in generated():
        found.append(_file(config, source, text))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text, pictures = notebook_pages.page(path)
        found.append(_file(config, f"notebooks/{path.name}", text, _Notebook))
        found += [_file(config, f"notebooks/{name}", data) for name, data in pictures.items()]
    for file in found:
        if file.is_documentation_page():
            file.dest_uri = file.dest_uri.removeprefix("docs/")
    kept = [file for file in files if file.src_dir != config.docs_dir and not _unused(file)]
    return Files([*kept, *found])


def _unused(file: File) -> bool:
    """Return True if a file of the theme serves only other languages, or debugging of the theme."""
    return "/lunr/" in file.src_uri or file.src_uri.endswith(".map")


def generated() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each generated page."""
    yield "docs/commands.md", reference.commands()
    yield "docs/reference/index.md", reference.index()
    for name in reference.PACKAGES:
        yield reference.source(name), reference.page(name)
    for name in method_pages.names():
        yield f"docs/methods/{name}.md", method_pages.page(name)


def on_page_content(html: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Leave out of the search what finds nothing new.

    These are the tables and lists of benchmarks, the tables of methods that have pages of their
    own, the changelog, and the code in the tables of papers.
    """
    uri = page.file.src_uri
    if uri == "CHANGELOG.md":
        page.meta["search"] = {"exclude": True}
    if uri.startswith("benchmarks/"):
        html = html.replace("<ul>", f"<ul {EXCLUDED}>")
    if uri.startswith("benchmarks/") or uri == "docs/methods.md":
        html = html.replace("<table>", f"<table {EXCLUDED}>")
    if uri == "docs/literature.md":
        html = html.replace("<code>", f"<code {EXCLUDED}>")
    return html


def on_post_page(output: str, page: Any, config: MkDocsConfig) -> str:
    """Remove the indentation of a page's HTML, a fifth of its size, and marks of the search."""
    return _outside_code(r"\s*\n\s*", "\n", output).replace(f" {EXCLUDED}", "")


def on_post_build(config: MkDocsConfig) -> None:
    """Write the search index without indentation, and as a script, which a page loads from disk."""
    folder = Path(config.site_dir) / "search"
    path = folder / "search_index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    for entry in index["docs"]:
        entry["text"] = _outside_code(r"\s+", " ", entry["text"])
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text, encoding="utf-8")
    (folder / "search_index.js").write_text(f"var __index = {text}", encoding="utf-8")


def _outside_code(pattern: str, new: str, html: str) -> str:
    """Replace a pattern of HTML outside code blocks and scripts."""
    whole = "pre|textarea|script|style"
    parts = re.split(rf"(<(?:{whole})\b.*?</(?:{whole})>)", html, flags=re.DOTALL)
    plain = [re.sub(pattern, new, part) for part in parts[::2]]
    kept = [*parts[1::2], ""]
    return "".join(x for pair in zip(plain, kept, strict=True) for x in pair)


def _file(config: MkDocsConfig, source: str, content: str | bytes, kind: type[File] = File) -> Any:
    file = kind.generated(config, source, content=content)
    if source == "docs/README.md":  # the front page is the repository's
        file.name, file.dest_uri = "overview", "overview.html"
    return file
