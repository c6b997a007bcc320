"""Notebooks as Markdown, with the outputs and pictures that they are stored with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_TITLE = re.compile(rb"<title>.*?</title>", re.DOTALL)
_STYLE = re.compile(r"<style.*?</style>", re.DOTALL)


def page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures by name."""
    import nbformat
    from nbconvert import MarkdownExporter

    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        for output in cell.get("outputs", ()):
            _kept(output)
    exporter = MarkdownExporter()
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    named = {"unique_key": path.stem, "output_files_dir": ""}
    text, resources = exporter.from_notebook_node(book, named)
    text = re.sub(r"!\[(?:png|svg)\]", "![Figure drawn by the cell above]", text)
    note = f"As a notebook: `notebooks/{path.name}`.\n\n"
    title, _, rest = text.partition("\n")
    # a page shows them as images, whose cells tell nothing under the pointer
    pictures = {
        name: _TITLE.sub(b"", content) if name.endswith(".svg") else content
        for name, content in resources["outputs"].items()
    }
    return f"{title}\n\n{note}{rest}", pictures


def _kept(output: Any) -> None:
    """Wrap a table so that it can scroll, and leave out its styles and the script's figure."""
    data = output.get("data", {})
    data.pop("application/vnd.plotly.v1+json", None)
    if "text/html" in data:
        html = _STYLE.sub("", data["text/html"])
        lines = "\n".join(line.strip() for line in html.splitlines() if line.strip())
        data["text/html"] = f'<div class="output" tabindex="0">{lines}</div>\n'
