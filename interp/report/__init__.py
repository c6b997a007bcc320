"""Pages made of results: head scores, attributions, faithfulness, trees, checks, attention."""

from __future__ import annotations

from interp.report.heads import render, write_report

__all__ = ["render", "write_report"]
