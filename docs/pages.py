"""Markdown files of the repository as pages: README, guides, method table, and linked files.

Links between files become links between pages, also to notebooks (made by `stories.py`); a linked
file that is neither is copied. So no link target can be missing, and only the starting files are
listed by hand.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from pdoc.render_helpers import to_html
from pygments.formatters import HtmlFormatter

HERE = Path(__file__).parent
ROOT = HERE.parent
READING_ORDER = (
    "models_and_sources",
    "head_scores",
    "capture_and_edits",
    "weights_and_lens",
    "special_heads",
    "retrieval_and_long_context",
    "attribution_and_flow",
    "causal_importance",
    "comparing_models",
    "circuits",
    "syntax",
    "safety",
    "report_and_viewer",
    "command_line",
)
BEGIN = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/README.md",
    "docs/methods.md",
    "docs/trust.md",
)
_STYLE = (HERE / "style.css").read_text(encoding="utf-8")
_POLICY = "default-src 'none'; img-src data: 'self'; style-src 'unsafe-inline'"
_LINK = re.compile(r'(<(?:a|img)\b[^>]*?(?:href|src)=)"([^"#][^"]*)"')


def write(out: Path) -> None:
    """Write every page below `out`."""
    waiting = [ROOT / name for name in BEGIN if (ROOT / name).is_file()] + guides()
    known: set[Path] = set()
    while waiting:
        source = waiting.pop()
        if source in known:
            continue
        known.add(source)
        waiting += _page(source, out)
    _commands(out)


def guides() -> list[Path]:
    """Return the guides in reading order."""
    return [HERE / "guides" / f"{name}.md" for name in READING_ORDER]


def notebooks() -> list[Path]:
    """Return the notebooks in reading order."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


def place(source: Path) -> Path:
    """Return the place of a repository file in the site."""
    if source == ROOT / "README.md":
        return Path("index.html")
    inside = source.relative_to(HERE if source.is_relative_to(HERE) else ROOT)
    return inside.with_suffix(".html") if inside.suffix in (".md", ".ipynb") else inside


def title(source: Path) -> str:
    """Return the first heading of a file."""
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".ipynb":
        text = "".join(json.loads(text)["cells"][0]["source"])
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1].replace("`", "") if found else source.stem


def with_tables(source: Path) -> str:
    """Return the text of a file, with generated tables inserted at their marks."""

    def made(match: re.Match[str]) -> str:
        return import_module(match[1]).page()

    text = source.read_text(encoding="utf-8")
    return re.sub(r"<!-- tables of (\w+) -->", made, text)


def _page(source: Path, out: Path) -> list[Path]:
    """Write one page and return the Markdown files that it links to."""
    body, at, found = str(to_html(with_tables(source))), place(source), []

    def moved(match: re.Match[str]) -> str:
        begin, target = match.groups()
        if re.match(r"[a-z]+:", target):
            return match[0]
        path, mark, part = target.partition("#")
        linked = (source.parent / path).resolve()
        if not linked.is_relative_to(ROOT) or not linked.exists():
            raise FileNotFoundError(f"{source.relative_to(ROOT)} links to {path}, which is missing")
        if linked.is_dir():
            linked = linked / "README.md"
        if linked.suffix == ".md":
            found.append(linked)
        elif linked.suffix != ".ipynb":
            copy = out / place(linked)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(linked, copy)
        return f'{begin}"{_relative(place(linked), at)}{mark}{part}"'

    finish(out, at, title(source), _LINK.sub(moved, body))
    return found


def _commands(out: Path) -> None:
    """Write the printed help of every command."""
    from interp.cli.main import main

    parts = ["<h1>Commands</h1>", _help(main, "interp")]
    for name, command in sorted(main.commands.items()):
        parts += [f'<h2 id="{name}">interp {name}</h2>', _help(command, f"interp {name}")]
    finish(out, Path("commands.html"), "Commands", "\n".join(parts))


def _help(command: Any, name: str) -> str:
    with click.Context(command, info_name=name, max_content_width=100, terminal_width=100) as ctx:
        return f"<pre>{escape(command.get_help(ctx))}</pre>"


def finish(
    out: Path, at: Path, heading: str, body: str, *, policy: str = _POLICY, after: str = ""
) -> None:
    """Write a page with the menu of all pages; `after` follows its text."""

    def link(target: Path, text: str) -> str:
        here = ' aria-current="page"' if target == at else ""
        return f'<li><a href="{_relative(target, at)}"{here}>{escape(text)}</a></li>'

    overview = Path("README.html")  # docs/README.md; the repository's own is the front page
    listed = link(overview, "Overview") + "".join(link(place(g), title(g)) for g in guides())
    told = "".join(link(place(path), title(path)) for path in notebooks())
    others = [
        (Path("methods.html"), "Methods"),
        (Path("commands.html"), "Commands"),
        (Path("api/index.html"), "API reference"),
        (Path("CONTRIBUTING.html"), "Contributing"),
    ]
    menu = (
        f"<ul>{link(Path('index.html'), 'interp')}</ul><h2>Guides</h2><ul>{listed}</ul>"
        f"<h2>Notebooks</h2><ul>{told}</ul>"
        f"<h2>Reference</h2><ul>{''.join(link(p, t) for p, t in others)}</ul>"
    )
    colours = HtmlFormatter(style="default").get_style_defs(".codehilite")
    body = body.replace("<table>", '<div class="scroll" tabindex="0"><table>').replace(
        "</table>", "</table></div>"
    )
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(heading)}</title><style>{colours}\n{_STYLE}</style></head><body>"
        '<a class="contents" href="#pages">Contents</a>'
        f'<nav id="pages" aria-label="pages">{menu}</nav><main>{body}</main>{after}</body></html>\n'
    )
    target = out / at
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page, encoding="utf-8")


def _relative(target: Path, at: Path) -> str:
    return Path(os.path.relpath(target, at.parent)).as_posix()
