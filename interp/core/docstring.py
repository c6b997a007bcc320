"""Sections of docstrings, such as `Not for:` and `Reference:`."""

from __future__ import annotations

import re
from collections.abc import Sequence

SECTIONS = ("Cost", "Null", "Not for", "Options", "Reference")
"""Sections that declarations may share, in the order in which they stand."""
_TITLE = re.compile(rf"({'|'.join(SECTIONS)}):")


def section(doc: str, title: str) -> str:
    """Return the text of a section on one line, up to the next empty line, or an empty text."""
    match = re.search(rf"^{title}:(.*?)(?:\n\s*\n|\Z)", doc, re.DOTALL | re.MULTILINE)
    return " ".join(match[1].split()) if match else ""


def with_shared(doc: str, shared: str, options: Sequence[str]) -> str:
    """Return a docstring with the sections of another one that it does not state.

    The entries of its options are those of either, of the named options in their order.
    """
    mine, other = _sections(doc), _sections(shared)
    entries = _options(other.get("Options", "")) | _options(mine.get("Options", ""))
    known = [entries[name] for name in options if name in entries]
    sections = other | mine | {"Options": "\n".join(["Options:", *known]) if known else ""}
    return "\n\n".join(filter(None, (sections.get(title) for title in ("", *SECTIONS))))


def _sections(doc: str) -> dict[str, str]:
    """Split a docstring by the titles of its sections; what precedes the first has none."""
    sections, title = {"": ""}, ""
    for paragraph in doc.split("\n\n"):
        started = _TITLE.match(paragraph)
        title = started[1] if started else title
        sections[title] = f"{sections[title]}\n\n{paragraph}" if sections.get(title) else paragraph
    return sections


def _options(text: str) -> dict[str, str]:
    """Split a section of options into its entries, by the first name that each describes."""
    entries = re.split(r"\n(?= {4}\w)", text)[1:]
    return {re.split("[,:]", entry.strip())[0]: entry for entry in entries}
