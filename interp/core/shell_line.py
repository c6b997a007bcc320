"""Command lines that are printed to be pasted: hints in errors, next steps, the origin of a page.

A line is made here and nowhere else. `tests/cli/test_printed_lines.py` reads every call of
`shell_line` in the package and compares its command, options and required arguments with the
declaration of the command.
"""

from __future__ import annotations

import shlex
from pathlib import Path


def shell_line(*words: object) -> str:
    """Return the command line `interp WORDS`, quoted for a shell."""
    plain = [
        f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word)
        for word in words
    ]
    return shlex.join(["interp", *plain])
