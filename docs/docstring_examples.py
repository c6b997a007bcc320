"""Griffe extension that shows the examples of docstrings as code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*\n).+)*", re.MULTILINE)


class Examples(griffe.Extension):
    """Put each example, from its prompt to the next empty line, into a block of code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of a loaded object."""
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = _EXAMPLE.sub(_block, obj.docstring.value)


def _block(match: re.Match[str]) -> str:
    return f"```pycon\n{match[0]}\n```"
