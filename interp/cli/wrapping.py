"""The gate through which all text goes to a terminal, and its lines.

Text that others wrote (the name of a folder, an error of a package, a cell of a table) may hold
control sequences that move the cursor, change the title of the window or reverse a line. `say`,
`print_text` and `print_rows` name them, such as [U+001B]. `gated_streams` does the same for
everything else that is written meanwhile: warnings, logging, tracebacks, and what packages print.
"""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import TextWrapper
from typing import Any, TextIO

import click

from interp.core.tokens import OWN_ESCAPE, visible

NARROWEST = 40  # columns below which nothing is between_words


def say(text: str, *, err: bool = False) -> None:
    """Print a text; on a terminal, long lines continue on the next one, further to the right.

    A terminal alone would break them within a word. A file or another program gets them whole.
    """
    stream: Any = sys.stderr if err else sys.stdout
    if stream.isatty():
        text = between_words(visible(text), shutil.get_terminal_size().columns)
    print_text(text, err=err)


def print_text(text: str, *, err: bool = False) -> None:
    """Print a text in its lines, with the colours that `coloured` marked and no other controls."""
    first, *rest = text.split(OWN_ESCAPE)
    stream: Any = sys.stderr if err else sys.stdout
    with _open_gate(stream):
        click.echo(visible(first) + "".join("\x1b" + visible(x) for x in rest), err=err)


def print_rows(text: str) -> None:
    """Print rows for another program, exactly; on a terminal, as `print_text` does."""
    # color=True: click would take colours out of what is no terminal
    click.echo(visible(text) if sys.stdout.isatty() else text, nl=False, color=True)


class Gate(io.TextIOBase):
    """Text stream that names control characters on their way to another one.

    Args:
        stream: the other stream.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.is_open = False  # while a text passes whose colours are ours

    def write(self, text: str, /) -> int:
        """Write a text; the carriage return with which a progress bar begins is kept."""
        bar = "\r" * text.startswith("\r")
        self.stream.write(text if self.is_open else bar + visible(text[len(bar) :]))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def flush(self) -> None:
        """Flush the other stream."""
        self.stream.flush()

    def isatty(self) -> bool:
        """Return True if the other stream is a terminal."""
        return self.stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the other stream."""
        return self.stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Encoding of the other stream."""
        return self.stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """Treatment of characters that the other stream's encoding lacks."""
        return self.stream.errors


@contextmanager
def gated_streams() -> Iterator[None]:
    """Let everything that is written to stderr in the block, or to a terminal, pass a gate."""
    before = sys.stdout, sys.stderr
    if sys.stdout is not None and sys.stdout.isatty():
        sys.stdout = Gate(sys.stdout)
    if sys.stderr is not None:
        sys.stderr = Gate(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextmanager
def _open_gate(stream: Any) -> Iterator[None]:
    """Let a text pass that `print_text` has read."""
    if not isinstance(stream, Gate):
        yield
        return
    stream.is_open = True
    try:
        yield
    finally:
        stream.is_open = False


def plain_stream(stream: Any) -> Any:
    """Return the stream behind a gate, for a drawer whose texts are read by `visible`."""
    return stream.stream if isinstance(stream, Gate) else stream


def between_words(text: str, width: int) -> str:
    """Break the lines of a text between words, so that none is wider than `width` columns.

    Words are not broken; what follows a break is indented by four columns more than its line.
    """
    return "\n".join(_wrapped(line, width) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    if len(line) <= width or width < NARROWEST:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    wrapper = TextWrapper(
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        expand_tabs=False,
    )
    return wrapper.fill(line)
