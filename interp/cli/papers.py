"""Papers of `--paper`: which call, command, file and test answer each."""

from __future__ import annotations

from interp.core.errors import OptionError
from interp.core.literature import find_papers


def paper_text(text: str, name: str | None) -> str:
    """Format the papers whose title contains a text."""
    if name is not None:
        raise OptionError(f"give a name ({name!r}) or --paper, not both")
    return "\n\n\n".join(str(paper) for paper in find_papers(text))
