"""The door from results to the folders that draw them: one table of names, looked up when used.

A result is of rank 0 and figures, pages and reports lie above it, so that it may not import them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_DRAWN = {
    "bars": "interp.draw.bars:bars",
    "data_table": "interp.draw.page:data_table",
    "heatmap": "interp.draw.plot:heatmap",
    "html_table": "interp.draw.page:html_table",
    "page": "interp.draw.page:page",
    "report": "interp.report:write_report",
}


def drawn_by(name: str) -> Any:
    """Look up the function that draws something, such as "bars" or "page"."""
    module, _, function = _DRAWN[name].partition(":")
    return getattr(import_module(module), function)
