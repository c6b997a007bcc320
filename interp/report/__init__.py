"""Pages made of results: head scores, attributions, faithfulness, circuits, trees, checks, views."""

from __future__ import annotations

from interp.report.heads import render, write_report

__all__ = ["render", "write_report"]
