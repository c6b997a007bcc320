r"""Text files: the one reader of text, of lines and of JSON lines.

A file is UTF-8; a byte-order mark is no part of its text. A line ends with `\n`, `\r\n` or `\r`, as
editors write them, and nowhere else: `str.splitlines` would also end it at a form feed, at U+0085
and at U+2028, which stand inside sentences and inside valid JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from interp.core.errors import PromptError

_END = re.compile(r"\r\n|\n|\r")


def read_text(path: str | Path) -> str:
    r"""Return the text of a UTF-8 file, with `\n` at the ends of lines and no byte-order mark."""
    return "".join(_pieces(Path(path)))


def read_lines(path: str | Path) -> list[str]:
    """Return the lines of a UTF-8 file without their ends; raises PromptError like `read_text`."""
    return list(iter_lines(path))


def iter_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file of any size; raises PromptError like `read_text`."""
    for line in _pieces(Path(path)):
        yield line.removesuffix("\n")


def lines_of_text(text: str, *, keep_ends: bool = False) -> list[str]:
    """Split a text into lines, as a file with this text is split."""
    lines, start = [], 0
    for end in _END.finditer(text):
        lines.append(text[start : end.end() if keep_ends else end.start()])
        start = end.end()
    return [*lines, text[start:]] if start < len(text) else lines


def require_inside(folder: Path, files: Iterable[Path]) -> list[Path]:
    """Return files that were found in a folder, none of which leads out of it by a link."""
    files, home = list(files), folder.resolve()
    for file in files:
        if home not in file.resolve().parents:
            raise PromptError(
                f"{file} is a link that leads out of {folder}, to {file.resolve()}; put a copy of "
                "the file there, or remove the link"
            )
    return files


def _pieces(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from file
    except OSError as error:
        raise PromptError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise PromptError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}"
        ) from error
