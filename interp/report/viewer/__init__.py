"""Attention to look at, in three scales: every head, one head, one query and key by dimension.

`view` runs a model on a short text and shows its patterns; `View.of_patterns` shows arrays that any
library made; `long_view` shows a prompt of thousands of tokens as exact masses of blocks, never as
a pattern. All of them show themselves in a notebook and write one page that works offline.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.report.viewer.pooled import LongView, long_view
    from interp.report.viewer.running import view
    from interp.report.viewer.showing import View

_WHERE = {"LongView": "pooled", "View": "showing", "long_view": "pooled", "view": "running"}
__all__ = ["LongView", "View", "long_view", "view"]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'interp.report.viewer' has no attribute {name!r}")
    value = getattr(import_module(f"interp.report.viewer.{_WHERE[name]}"), name)
    globals()[name] = value
    return value
