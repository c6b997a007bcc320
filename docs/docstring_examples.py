"""Griffe extension: examples of docstrings as code, and the sections that declarations share."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import griffe

from interp.core.registry import REGISTRIES

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*\n).+)*", re.MULTILINE)


class Examples(griffe.Extension):
    """Put each example into a block of code; show a declared function's whole documentation."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of a loaded object."""
        if obj.docstring is None:
            return
        if obj.is_function and isinstance(obj.filepath, Path):
            obj.docstring.value = _declared().get((obj.filepath, obj.name), obj.docstring.value)
        if ">>> " in obj.docstring.value:
            obj.docstring.value = _EXAMPLE.sub(_block, obj.docstring.value)


@cache
def _declared() -> dict[tuple[Path, str], str]:
    """Return the documentation of each declared function, by its file and name."""
    return {(e.path, e.name): e.doc for known in REGISTRIES for e in known.values()}


def _block(match: re.Match[str]) -> str:
    return f"```pycon\n{match[0]}\n```"
