"""Notebooks as pages of the site, with the outputs of their cells at the time of the build.

Outputs of cells are untrusted text: markup is reduced to tables and paragraphs, texts are escaped,
and the page's policy allows only the site's own two scripts, which draw the figures. A figure's
numbers are below it as a table, for readers without scripts.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from html import escape
from pathlib import Path
from typing import Any

import figures
import pages
from markup import kept
from pdoc.render_helpers import to_html
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

TIMEOUT = 600  # seconds that a cell may take
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_SCRIPTS = "plotly.min.js", "figures.js"  # the only scripts allowed in these pages, in this order
# Firefox requires `file:` where 'self' is a folder on disk.
_POLICY = (
    "default-src 'none'; img-src data: 'self' file:; style-src 'unsafe-inline'; "
    "script-src 'self' file:"
)
_FIGURE = "application/vnd.plotly.v1+json"
_IMAGES = {"image/png": "data:image/png;base64,{}"}


def write(out: Path, *, run: bool) -> None:
    """Write a page per notebook below `out`.

    Args:
        out: the folder of the site.
        run: run the notebooks first, each in a separate folder; otherwise a page shows no outputs
            and states this.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    import nbformat

    for path in pages.notebooks():
        book = nbformat.read(path, as_version=4)
        if run:
            print(f"running {path.name}", flush=True)
            execute(book)
        page(book, path, out, run=run)
    if run:
        scripts(out)


def scripts(out: Path) -> None:
    """Copy the scripts that draw the figures beside the pages, once for all."""
    import plotly

    drawn = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    for script in (drawn, pages.HERE / "figures.js"):
        shutil.copyfile(script, out / "notebooks" / script.name)


def execute(book: Any) -> None:
    """Run a notebook from top to bottom, in place."""
    from nbclient import NotebookClient

    # tqdm's, where no ipywidgets are installed: about this machine, not about the notebook
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore:IProgress not found"}
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            book, timeout=TIMEOUT, kernel_name="python3", resources={"metadata": {"path": folder}}
        ).execute(env=quiet)


def page(book: Any, path: Path, out: Path, *, run: bool) -> None:
    """Write one notebook as a page."""
    parts, drawn = [], 0
    for cell in book.cells:
        if cell.cell_type == "markdown":
            parts.append(str(to_html(cell.source)))
        elif cell.cell_type == "code":
            parts.append(
                highlight(cell.source, PythonLexer(), HtmlFormatter(cssclass="codehilite"))
            )
            for output in cell.outputs:
                drawn += _FIGURE in output.get("data", {})
                parts.append(shown(output))
    left = "" if run else " <em>Built without running: the outputs of its cells are left out.</em>"
    parts.insert(1, f"<p>As a notebook: <code>notebooks/{path.name}</code>.{left}</p>")
    after = "".join(f'<script src="{name}" defer></script>' for name in _SCRIPTS)
    options = {"policy": _POLICY, "after": after} if drawn else {}
    pages.finish(out, pages.place(path), pages.title(path), "\n".join(parts), **options)


def shown(output: Any) -> str:
    """Return one output of a cell as inert HTML.

    Raises:
        ValueError: its kind has no text representation.
    """
    if output.output_type == "stream":
        return _text(output.text, "stderr" if output.name == "stderr" else "output")
    if output.output_type == "error":
        return _text("\n".join(output.traceback), "stderr")
    data = output.data
    if _FIGURE in data:
        return figures.figure(data[_FIGURE])
    for kind, address in _IMAGES.items():
        if kind in data:
            src = escape(address.format("".join(data[kind].split())))
            return f'<p class="output"><img src="{src}" alt="picture of the cell above"></p>'
    if "text/html" in data:
        return f'<div class="output">{kept(data["text/html"])}</div>'
    if "text/plain" in data:
        return _text(data["text/plain"], "output")
    raise ValueError(f"an output of kind {', '.join(data)} cannot be shown")


def _text(text: str, kind: str) -> str:
    return f'<pre class="{kind}">{escape(_CONTROL.sub("", text))}</pre>'
