"""Sections of docstrings, such as `Not for:` and `Reference:`."""

from __future__ import annotations

import re


def section(doc: str, title: str) -> str:
    """Return the text of a section on one line, up to the next empty line, or an empty text."""
    found = re.search(rf"^{title}:(.*?)(?:\n\s*\n|\Z)", doc, re.DOTALL | re.MULTILINE)
    return " ".join(found[1].split()) if found else ""
